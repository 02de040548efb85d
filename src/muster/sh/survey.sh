# shellcheck shell=sh
# survey [load]: everything there is to know of all agents, in one go: one tmux call, no process per agent.
#   now EPOCH
#   load LOAD CORES MEMORY DISK: with `load`, how busy the host is, and what it has left in KB; - is not known
#   pane SESSION DEAD STATUS SIGNAL PID COMMAND
#   dir ID
#   file ID/NAME<TAB>line, file ../names/NAME<TAB>ID
#   tail output of the newest recordings, behind a line "tails"
mu_now=$(date +%s.%N)
case $mu_now in *N) mu_now=${mu_now%.*} ;; esac
printf 'now %s\n' "$mu_now"
if [ "${1:-}" = load ]; then
	mu_load=- mu_cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null) || mu_cores=-
	[ ! -r /proc/loadavg ] || read -r mu_load mu_rest </proc/loadavg
	mu_memory=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null) || mu_memory=
	mu_disk=$(df -Pk "$mu_home" 2>/dev/null | awk 'NR == 2 { print $4 }') || mu_disk=
	printf 'load %s %s %s %s\n' "$mu_load" "${mu_cores:--}" "${mu_memory:--}" "${mu_disk:--}"
fi
cd "$mu_home/agents" 2>/dev/null || exit 0
command -v tmux >/dev/null || die 1 "tmux is not installed"
mu_tmux list-panes -a -F 'pane #{session_name} #{?pane_dead,1,0} #{?#{==:#{pane_dead_status},},-,#{pane_dead_status}} #{?pane_dead_signal,#{pane_dead_signal},0} #{pane_pid} #{s/[^A-Za-z0-9_.+-]/?/:pane_current_command}' 2>/dev/null || :

# The command's name is the agent's own choice, so it was stripped of newlines; so are odd names of folders.
mu_files() {
	for mu_dir in *; do
		case $mu_dir in *[!A-Za-z0-9_-]*) continue ;; esac
		printf '%s\n' "$mu_dir/agent.json" "$mu_dir/usage.json" "$mu_dir/result.json"
		for mu_kind in started ready prompt queued tool answered retry turn-end interrupted ask permission limit error stopped exit; do
			printf '%s\n' "$mu_dir/ev/$mu_kind"
		done
		# What the agent's client itself writes down of its status, under the number of its process.
		mu_count=0
		for mu_file in "$mu_dir"/client/home/sessions/*.json; do
			case $mu_file in *[!A-Za-z0-9_./-]*) continue ;; esac
			mu_count=$((mu_count + 1))
			[ "$mu_count" -gt 20 ] || printf '%s\n' "$mu_file"
		done
	done
	for mu_file in ../names/*; do printf '%s\n' "$mu_file"; done
}
mu_tails() {
	for mu_dir in *; do
		case $mu_dir in *[!A-Za-z0-9_-]*) continue ;; esac
		[ ! -f "$mu_dir/rec/tail" ] || printf '%s\n' "./$mu_dir/rec/tail"
	done
}
for mu_dir in *; do
	case $mu_dir in *[!A-Za-z0-9_-]*) ;; *) printf 'dir %s\n' "$mu_dir" ;; esac
done
# Plain files of a sane size only: no pipe, device, link or flood in an agent's folder may stop the survey.
# shellcheck disable=SC2016  # the inner shell's and awk's own
mu_files | xargs sh -c '[ $# = 0 ] || exec find "$@" -prune -type f -size -8192' find 2>/dev/null | awk '{
	if ((getline line < $0) > 0) printf "file %s\t%s\n", $0, ($0 ~ /(agent|result)\.json$/ ? line : substr(line, 1, 100000))
	close($0)
}'
printf 'tails\n'
# /dev/null makes tail write its headers even when there is one file only.
mu_tails | xargs tail -c 600 /dev/null 2>/dev/null || :
