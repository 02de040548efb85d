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
mu_tries=0
until mu_said=$(ln -s "$4" "$mu_lock" 2>&1); do
	if readlink "$mu_lock" 2>/dev/null; then exit 17; fi
	# It was let go in between. What fails again and again has another reason.
	mu_tries=$((mu_tries + 1))
	[ "$mu_tries" -lt 5 ] || die 1 "$mu_said"
done
