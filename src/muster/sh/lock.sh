# shellcheck shell=sh
# lock on|off ID: one sender at a time. A lock older than a minute was left by one that died.
cd "$mu_home/agents/$2" || die 3 "no agent $2"
if [ "$1" = off ]; then
	rmdir lock 2>/dev/null || :
	exit 0
fi
[ -z "$(find lock -prune -mmin +1 2>/dev/null)" ] || rmdir lock 2>/dev/null || :
mkdir lock 2>/dev/null || exit 17
