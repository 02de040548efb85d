# shellcheck shell=sh
# lock on|off ID LOCK OWNER MINUTES: one at a time. A symbolic link is made at once and tells whose it is: 17 and the
# owner on stdout when another has it. One older than that was left by somebody who died, wherever that was.
cd "$mu_home/agents/$2" 2>/dev/null || die 3 "no agent $2"
mu_lock=$3
mu_owner=$(readlink "$mu_lock" 2>/dev/null) || mu_owner=
if [ "$1" = off ]; then
	[ "$mu_owner" != "$4" ] || rm -f "$mu_lock"
	exit 0
fi
[ -z "$(find "$mu_lock" -prune -mmin "+$5" 2>/dev/null)" ] || rm -rf "$mu_lock"
[ ! -d "$mu_lock" ] || [ -h "$mu_lock" ] || exit 17
if ! mu_said=$(ln -s "$4" "$mu_lock" 2>&1); then
	readlink "$mu_lock" 2>/dev/null || die 1 "$mu_said"
	exit 17
fi
