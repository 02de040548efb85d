# shellcheck shell=sh
# lock on|off ID LOCK OWNER MINUTES [DEAD]: one owner at a time. A symbolic link says whose it is: 17 and the owner on stdout
# when another has it. One that is older than MINUTES, or whose owner is DEAD, is taken over.
mu_enter "$2"
mu_lock=$3

# All of this happens while no other script does it: between looking at a lock and removing it, somebody else may have taken it.
# The kernel lets go of the guard when the script ends, however it ends.
exec 9>>"$mu_home/guard"
mu_guarded=1
if command -v flock >/dev/null; then
	flock -w 30 9 || die 1 "another muster has held $mu_home/guard for 30 seconds"
elif ! perl -e 'alarm 30; open(my $file, ">>&=", 9) && flock($file, 2) or exit 1' 2>/dev/null; then
	mu_guarded= # then a lock is made and released, but never taken from anybody
fi

mu_owner=$(readlink "$mu_lock" 2>/dev/null) || mu_owner=
if [ "$1" = off ]; then
	[ "$mu_owner" != "$4" ] || rm -f "$mu_lock"
	exit 0
fi
if [ -n "$mu_guarded" ]; then
	if [ -n "$(find "$mu_lock" -prune -mmin "+$5" 2>/dev/null)" ] || { [ -n "$mu_owner" ] && [ "$mu_owner" = "${6-}" ]; }; then
		rm -rf "$mu_lock"
	fi
fi
[ ! -d "$mu_lock" ] || [ -h "$mu_lock" ] || exit 17
mu_tries=0
until mu_said=$(ln -s "$4" "$mu_lock" 2>&1); do
	if readlink "$mu_lock" 2>/dev/null; then exit 17; fi
	# It was let go in between. What fails again and again has another reason.
	mu_tries=$((mu_tries + 1))
	[ "$mu_tries" -lt 5 ] || die 1 "$mu_said"
done
