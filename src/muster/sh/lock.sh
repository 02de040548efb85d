# shellcheck shell=sh
# lock on|off|break ID OWNER: one sender at a time. A symbolic link is made at once and tells whose it is: 17 and the
# owner on stdout when another has it. One older than a minute was left by a sender that died, wherever that was.
cd "$mu_home/agents/$2" || die 3 "no agent $2"
mu_owner=$(readlink lock 2>/dev/null) || mu_owner=
if [ "$1" != on ]; then
	[ "$mu_owner" != "$3" ] || rm -f lock
	exit 0
fi
[ -z "$(find lock -prune -mmin +1 2>/dev/null)" ] || rm -rf lock
[ ! -d lock ] || [ -h lock ] || exit 17
if ! mu_said=$(ln -s "$3" lock 2>&1); then
	readlink lock 2>/dev/null || die 1 "$mu_said"
	exit 17
fi
