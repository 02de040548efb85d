# shellcheck shell=sh
# Everything there is to know of all agents, in one go: one tmux call, no process per agent.
#   now EPOCH
#   pane SESSION DEAD STATUS SIGNAL PID COMMAND
#   dir ID
#   file ID/NAME<TAB>line, file ../names/NAME<TAB>ID
#   tail output of the newest recordings, behind a line "tails"
printf 'now %s\n' "$(date +%s)"
cd "$mu_home/agents" 2>/dev/null || exit 0
command -v tmux >/dev/null || die 1 "tmux is not installed"
mu_tmux list-panes -a -F 'pane #{session_name} #{?pane_dead,1,0} #{?pane_dead_status,#{pane_dead_status},0} #{?pane_dead_signal,#{pane_dead_signal},0} #{pane_pid} #{s/[^A-Za-z0-9_.+-]/?/:pane_current_command}' 2>/dev/null || :

# The command's name is the agent's own choice, so it was stripped of newlines; so are odd names of folders.
set --
mu_tails=
for mu_dir in *; do
	case $mu_dir in *[!A-Za-z0-9_-]*) continue ;; esac
	printf 'dir %s\n' "$mu_dir"
	for mu_file in agent.json usage.json ev/started ev/ready ev/prompt ev/queued ev/tool ev/answered ev/retry ev/turn-end \
		ev/interrupted ev/ask ev/permission ev/limit ev/error ev/stopped ev/exit; do
		[ ! -f "$mu_dir/$mu_file" ] || set -- "$@" "$mu_dir/$mu_file"
	done
	[ ! -f "$mu_dir/rec/tail" ] || mu_tails="$mu_tails ./$mu_dir/rec/tail"
done
for mu_file in ../names/*; do [ ! -f "$mu_file" ] || set -- "$@" "$mu_file"; done
[ $# -gt 0 ] || exit 0
# Plain files of a sane size only: no pipe, device, link or flood in an agent's folder may stop the survey.
# shellcheck disable=SC2016  # awk's own
find "$@" -prune -type f -size -8192 -exec awk 'BEGIN {
	for (i = 1; i < ARGC; i++) {
		if ((getline line < ARGV[i]) > 0)
			printf "file %s\t%s\n", ARGV[i], (ARGV[i] ~ /agent\.json$/ ? line : substr(line, 1, 100000))
		close(ARGV[i])
	}
}' {} + 2>/dev/null || :
if [ -n "$mu_tails" ]; then
	printf 'tails\n'
	# /dev/null makes tail write its headers even when there is one file only.
	# shellcheck disable=SC2086  # ids hold no spaces
	tail -c 600 /dev/null $mu_tails 2>/dev/null || :
fi
