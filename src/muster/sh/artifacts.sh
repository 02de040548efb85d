# shellcheck shell=sh
# artifacts ID LIMIT: send a tar of what the agent submitted, cut at LIMIT bytes.
mu_enter "$1" trash
[ -d artifacts ] && [ ! -h artifacts ] || exit 0
cd artifacts
{ tar -cf - . 2>/dev/null || :; } | head -c "$2"
