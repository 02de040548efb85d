# shellcheck shell=sh
# stop GRACE REAP ID...: keep the last screen, end every process, remove the session, of all these agents at once.
# REAP is the text of agent/reap.sh. Prints a line for each: `ID missing`, or `ID LIVE PROCESSES`: 1 if it had a running session, and how many processes it had
# (counted only for those without a running session).
mu_grace=$1 mu_reap=$2
shift 2
cd "$mu_home/agents" 2>/dev/null || {
	printf '%s missing\n' "$@"
	exit 0
}
# shellcheck disable=SC2154  # mu_own comes from lib.sh
mu_panes=$(mu_tmux list-panes -a -f "$mu_own" -F '#{s/[^A-Za-z0-9_-]/?/:session_name} #{pane_dead}' 2>/dev/null) || :
mu_panes="
$mu_panes
"
mu_ids='' mu_ended=''
mu_new=$mu_home/tmp/screen.$$
[ -d "$mu_home/tmp" ] || mkdir "$mu_home/tmp" 2>/dev/null || :
trap 'rm -f "$mu_new"' TERM
for mu_id; do
	if [ ! -d "$mu_id" ] || [ -h "$mu_id" ]; then
		printf '%s missing\n' "$mu_id"
		continue
	fi
	mu_ids=$mu_ids,$mu_id
	case $mu_panes in
	*"
$mu_id 0
"*)
		printf '%s 1 0\n' "$mu_id"
		mu_event "$mu_home/agents/$mu_id" stopped || :
		;;
	*) mu_ended="$mu_ended $mu_id" ;;
	esac
	case $mu_panes in
	*"
$mu_id "[01]"
"*)
		# A full disk must not prevent this. The agent may have replaced its file by a link.
		{ mu_tmux capture-pane -p -e -S - -t "=$mu_id:" >"$mu_new" && { [ ! -d "$mu_id/screen" ] || rm -rf "$mu_id/screen"; } && mv -f "$mu_new" "$mu_id/screen"; } 2>/dev/null || rm -f "$mu_new"
		;;
	esac
done
if [ -n "$mu_ended" ]; then
	mu_marks=$(mu_processes)
	for mu_id in $mu_ended; do
		printf '%s 0 %s\n' "$mu_id" "$(printf '%s\n' "$mu_marks" | grep -cx "$mu_id")" || :
	done
fi
[ -n "$mu_ids" ] || exit 0
sh -c "$mu_reap" reap "${mu_ids#,}" "$mu_grace" || :
IFS=,
for mu_id in ${mu_ids#,}; do
	unset IFS
	[ ! -e "$mu_id/notify/env" ] || [ -h "$mu_id/notify" ] || rm -rf "$mu_id/notify/env"
	# See wrap: the folder for sockets of a deep state folder.
	mu_deep=$mu_home/agents/$mu_id/tmp
	if [ ${#mu_deep} -ge 80 ]; then
		mu_shared=/tmp/muster-$(id -u)
		! mu_is_ours "$mu_shared" || rm -rf "${mu_shared:?}/$mu_id"
	fi
	mu_tmux kill-session -t "=$mu_id:" 2>/dev/null || :
	if [ -f "$mu_id/cgroup" ]; then
		rmdir "$(cat "$mu_id/cgroup")" 2>/dev/null || :
		rm -f "$mu_id/cgroup"
	fi
done
