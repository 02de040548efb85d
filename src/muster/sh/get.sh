# shellcheck shell=sh
# get ID NAME…: those files of an agent's folder that exist, as a tar; from the trash when it is there.
mu_id=$1
shift
cd "$mu_home/agents/$mu_id" 2>/dev/null || cd "$mu_home/trash/$mu_id/agent" 2>/dev/null || die 3 "no agent $mu_id"
mu_count=$#
while [ "$mu_count" -gt 0 ]; do
	# Names may be patterns.
	for mu_file in $1; do
		[ ! -f "$mu_file" ] || set -- "$@" "$mu_file"
	done
	shift
	mu_count=$((mu_count - 1))
done
[ $# -eq 0 ] || tar -cf - -- "$@"
