# shellcheck shell=sh
# artifacts ID LIMIT: a tar of what the agent submitted, cut at LIMIT bytes.
cd "$mu_home/agents/$1" 2>/dev/null || cd "$mu_home/trash/$1/agent" 2>/dev/null || die 3 "no agent $1"
[ -d artifacts ] && [ ! -h artifacts ] || exit 0
cd artifacts
{ tar -cf - . 2>/dev/null || :; } | head -c "$2"
