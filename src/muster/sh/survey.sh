# shellcheck shell=sh
# Everything there is to know of all agents, in one go: one tmux call, no process per agent.
#   now EPOCH
#   pane SESSION DEAD STATUS SIGNAL PID COMMAND
#   file ID/NAME<TAB>line
#   tail output of the newest recordings, behind a line "tails"
printf 'now %s\n' "$(date +%s)"
cd "$mu_home/agents" 2>/dev/null || exit 0
command -v tmux >/dev/null || die 1 "tmux is not installed"
mu_tmux list-panes -a -F 'pane #{session_name} #{?pane_dead,1,0} #{?pane_dead_status,#{pane_dead_status},0} #{?pane_dead_signal,#{pane_dead_signal},0} #{pane_pid} #{pane_current_command}' 2>/dev/null || :

set --
mu_tails=
for mu_dir in *; do
	# Plain files only: a pipe or a device in an agent's folder must not stop the survey.
	[ -f "$mu_dir/agent.json" ] || continue
	for mu_file in agent.json usage.json ev/started ev/ready ev/prompt ev/queued ev/tool ev/answered ev/retry ev/turn-end \
		ev/interrupted ev/ask ev/permission ev/limit ev/error ev/stopped ev/exit; do
		[ ! -f "$mu_dir/$mu_file" ] || set -- "$@" "$mu_dir/$mu_file"
	done
	[ ! -f "$mu_dir/rec/tail" ] || mu_tails=1
done
[ $# -gt 0 ] || exit 0
awk 'BEGIN {
	for (i = 1; i < ARGC; i++) {
		if ((getline line < ARGV[i]) > 0) printf "file %s\t%s\n", ARGV[i], substr(line, 1, 100000)
		close(ARGV[i])
	}
}' "$@"
if [ -n "$mu_tails" ]; then
	printf 'tails\n'
	# /dev/null makes tail write its headers even when there is one file only.
	tail -c 600 /dev/null ./*/rec/tail 2>/dev/null || :
fi
