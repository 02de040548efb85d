# shellcheck shell=sh
# lock on LOCK OWNER MINUTES DEAD ID… | off LOCK OWNER ID…: one owner at a time, for each of these agents. A symbolic link says
# whose a lock is. One that is older than MINUTES, or whose owner is DEAD, is taken over. Prints a line for each agent whose
# lock was not taken: `ID missing`, `ID held OWNER` or `ID failed WHY`; then it ends with 4.
mu_verb=$1 mu_lock=$2 mu_me=$3
shift 3
if [ "$mu_verb" = on ]; then
	mu_minutes=$1 mu_dead=$2
	shift 2
fi
mu_agents

# All of this happens while no other script does it: between looking at a lock and removing it, somebody else may have taken it.
# The kernel lets go of the guard when the script ends, however it ends.
exec 9>>"$mu_home/guard"
mu_guarded=1
if command -v flock >/dev/null; then
	flock -w 30 9 || die 1 "another muster has held $mu_home/guard for 30 seconds"
elif ! perl -e 'alarm 30; open(my $file, ">>&=", 9) && flock($file, 2) or exit 1' 2>/dev/null; then
	mu_guarded= # then a lock is made and released, but never taken from anybody
fi

lock_one() {
	if [ -n "$mu_guarded" ] && { [ -e "$mu_lock" ] || [ -h "$mu_lock" ]; }; then
		mu_owner=$(readlink "$mu_lock") || mu_owner=
		if [ -n "$(find "$mu_lock" -prune -mmin "+$mu_minutes" 2>/dev/null)" ] || { [ -n "$mu_owner" ] && [ "$mu_owner" = "$mu_dead" ]; }; then
			rm -rf "$mu_lock"
		fi
	fi
	mu_tries=0
	until
		mu_said="$mu_lock is a folder"
		{ [ ! -d "$mu_lock" ] || [ -h "$mu_lock" ]; } && mu_said=$(ln -s "$mu_me" "$mu_lock" 2>&1)
	do
		if mu_owner=$(readlink "$mu_lock" 2>/dev/null); then
			printf '%s held %s\n' "$mu_id" "$mu_owner"
			return 1
		fi
		# It was let go in between. What fails again and again has another reason.
		mu_tries=$((mu_tries + 1))
		if [ "$mu_tries" -ge 5 ]; then
			printf '%s failed %s\n' "$mu_id" "$mu_said"
			return 1
		fi
	done
}

mu_code=0
for mu_id; do
	mu_go "$mu_id" || { mu_code=4; continue; }
	if [ "$mu_verb" = on ]; then
		lock_one || mu_code=4
	elif [ "$(readlink "$mu_lock" 2>/dev/null)" = "$mu_me" ]; then
		rm -f "$mu_lock"
	fi
done
exit "$mu_code"
