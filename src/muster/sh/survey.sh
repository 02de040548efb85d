# shellcheck shell=sh
# survey [load]: everything there is to know of all agents, in one go: one tmux call, no process per agent.
# survey one NAME [ID]: the same of one agent; without ID, of the one that has the name, or of all agents if none has claimed it.
#   now EPOCH
#   home FOLDER: the state folder
#   load LOAD CORES MEMORY DISK: with `load`, how busy the host is (of one minute; what wants to run now, if that is less), and
#     what it has left in KB; - is not known
#   pane SESSION DEAD STATUS SIGNAL PID COMMAND RETRIES CURSOR MENU: the line of its screen that shows that it tries again; the row of
#     its cursor, - if it is hidden; `menu` if a line looks like the selected entry of one
#   screen SESSION<TAB>line: the screens that may show a menu
#   alive ID PROCESSES: it has no session and no recorded end, but processes
#   dir ID
#   file ID/NAME<TAB>line, file ../names/NAME<TAB>ID
#   gone ID: it went to the trash while its files were read, so some of them may be missing here
#   tail output of the newest recordings, behind a line "tails"
mu_now=$(date +%s.%N)
case $mu_now in *N) mu_now=${mu_now%.*} ;; esac
printf 'now %s\nhome %s\n' "$mu_now" "$mu_home"
if [ "${1:-}" = load ]; then
	mu_load=- mu_cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null) || mu_cores=-
	if [ -r /proc/loadavg ]; then
		# The average of a minute still tells of a burst that is long over.
		read -r mu_load mu_rest mu_rest mu_run mu_rest </proc/loadavg
		mu_run=$((${mu_run%%/*} - 1))
		[ "$mu_run" -ge "${mu_load%%.*}" ] || mu_load=$mu_run
	fi
	mu_memory=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null) || mu_memory=
	mu_disk=$(df -Pk "$mu_home" 2>/dev/null | awk 'NR == 2 { print $4 }') || mu_disk=
	printf 'load %s %s %s %s\n' "$mu_load" "${mu_cores:--}" "${mu_memory:--}" "${mu_disk:--}"
fi
# With `load` the caller wants to start agents here. A host that never had one can be listed without tmux.
[ -d "$mu_home/agents" ] || [ "${1:-}" = load ] || exit 0
command -v tmux >/dev/null || die 1 "tmux is not installed"
cd "$mu_home/agents" 2>/dev/null || exit 0
# Patterns: used without quotes, they become the folders and names that there are.
mu_which='*' mu_names='*'
set -- "${1:-}" "${2:-}" "${3:-}"
if [ "$1" = one ]; then
	mu_names=$2 mu_which=${3:-$(cat "../names/$2" 2>/dev/null)} || mu_which=
	case $mu_names,$mu_which in ,* | *[!A-Za-z0-9_,-]*) exit 0 ;; esac
	# An agent may have the name by its record only. If none has, the caller can suggest another one.
	if [ -z "$3" ] && [ ! -d "${mu_which:-none}" ]; then mu_which='*' mu_names='*'; fi
fi
case $mu_which in '*') set -- -a ;; *) set -- -s -t "=$mu_which:" ;; esac
# shellcheck disable=SC2154  # mu_own comes from lib.sh
mu_panes=$(mu_tmux list-panes "$@" -f "$mu_own" -F 'pane #{s/[^A-Za-z0-9_-]/?/:session_name} #{?pane_dead,1,0} #{?#{==:#{pane_dead_status},},-,#{pane_dead_status}} #{?pane_dead_signal,#{pane_dead_signal},0} #{pane_pid} #{s/[^A-Za-z0-9_.+-]/?/:pane_current_command} #{?@retries,#{C/r:#{@retries}},0} #{?cursor_flag,#{cursor_y},-} #{?@choice,#{?#{&&:#{@cursor},#{cursor_flag}},,#{?#{C/r:#{@choice}},menu,}},}' 2>/dev/null) || :
[ -z "$mu_panes" ] || printf '%s\n' "$mu_panes"
# Dialogs without a hook: read the screens that may show one, 40 per call, because tmux takes no long command lines. The
# mark before each is one that no program can know.
case $mu_panes in
*' menu'*)
	printf '%s\n' "$mu_panes" | awk -v mark="$mu_now/" '$3 == 0 && $10 == "menu" {
		print "display-message -p -t =" $2 ": " mark $2 " ; capture-pane -p -t =" $2 ": ;"
	}' | xargs -n 440 tmux -u -S "$mu_sock" 2>/dev/null | LC_ALL=C awk -v mark="$mu_now/" '
		index($0, mark) == 1 { session = substr($0, length(mark) + 1); next }
		{ printf "screen %s\t%s\n", session, substr($0, 1, 4000) }'
	;;
esac

# The names of commands and sessions are the agents' own choice, so they were stripped of blanks and newlines; so are odd names of folders.
# shellcheck disable=SC2086  # patterns
mu_files() {
	printf '%s\n' $mu_which/agent.json $mu_which/usage.json $mu_which/result.json ../names/$mu_names
	for mu_kind in started ready prompt queued tool answered retry turn-end interrupted ask permission limit error stopped exit; do
		printf '%s\n' $mu_which/ev/$mu_kind
	done
	# The status files of the agent's client, see AgentType.status.
	printf '%s\n' $mu_which/client/status/*.json
}
mu_tails() { # the newest recording of each agent
	for mu_dir in $mu_which; do
		case $mu_dir in *[!A-Za-z0-9_-]*) continue ;; esac
		case $mu_links in *" $mu_dir "* | *" $mu_dir/rec "*) continue ;; esac
		mu_most=0
		for mu_raw in "$mu_dir"/rec/*.raw; do
			mu_raw=${mu_raw##*/} mu_raw=${mu_raw%.raw}
			case $mu_raw in *[!0-9]* | ???????*) continue ;; esac
			[ "$mu_raw" -le "$mu_most" ] || mu_most=$mu_raw
		done
		mu_raw=./$mu_dir/rec/$mu_most.raw
		if [ -f "$mu_raw" ] && [ ! -h "$mu_raw" ]; then printf '%s\n' "$mu_raw"; fi
	done
}
# Links that an agent put in the place of its folders. What they lead to is not read: the record then counts as damaged.
mu_links=' '
# shellcheck disable=SC2086  # a pattern
set -- $mu_which
for mu_dir; do
	case $mu_dir in *[!A-Za-z0-9_-]*) continue ;; esac
	if [ -h "$mu_dir" ]; then
		mu_links="$mu_links$mu_dir "
	elif [ ! -e "$mu_dir" ]; then
		continue
	else
		for mu_part in ev rec client client/status; do
			[ ! -h "$mu_dir/$mu_part" ] || mu_links="$mu_links$mu_dir/$mu_part "
		done
	fi
	printf 'dir %s\n' "$mu_dir"
done
# The process table is read only if an agent was started, has no session, and no event tells of its end.
mu_open=
for mu_dir; do
	case $mu_dir in *[!A-Za-z0-9_-]*) continue ;; esac
	case $mu_links in *" $mu_dir "* | *" $mu_dir/ev "*) continue ;; esac
	[ -f "$mu_dir/ev/started" ] || continue
	# shellcheck disable=SC3013  # dash, bash and busybox have -nt
	if [ "$mu_dir/ev/exit" -nt "$mu_dir/ev/started" ] || [ "$mu_dir/ev/stopped" -nt "$mu_dir/ev/started" ]; then continue; fi
	# Of a few agents the shell itself finds out who has a session; of many, one program does in less time.
	if [ $# -le 50 ]; then
		case $mu_panes in *"pane $mu_dir "*) continue ;; esac
	fi
	mu_open="$mu_open $mu_dir"
done
[ -z "$mu_open" ] || mu_open=$(printf '%s\n' "$mu_panes" | LC_ALL=C awk -v open="$mu_open" '
	{ shown[$2] }
	END { n = split(open, words, " "); for (i = 1; i <= n; i++) if (!(words[i] in shown)) print words[i] }' | tr '\n' ' ')
[ -z "$mu_open" ] || mu_processes | LC_ALL=C awk -v open="$mu_open" '
	BEGIN { n = split(open, words, " "); for (i = 1; i <= n; i++) wanted[words[i]] }
	$0 in wanted { count[$0]++ }
	END { for (id in count) printf "alive %s %d\n", id, count[id] }'
# Plain files of a sane size only: no pipe, device, link or flood in an agent's folder may stop the survey.
# Of a result one byte more than flow/run/results.py takes: what is too large is seen to be, however large it is.
# shellcheck disable=SC2016  # the inner shell's and awk's own
mu_files | LC_ALL=C awk -F / -v links="$mu_links" '
	BEGIN { n = split(links, words, " "); for (i = 1; i <= n; i++) linked[words[i]] }
	n && (($1 in linked) || ($1 "/" $2 in linked) || ($1 "/" $2 "/" $3 in linked)) { next }
	$1 == ".." ? /^\.\.\/names\/[A-Za-z0-9_-]+$/ : /^[A-Za-z0-9_-]+\/[A-Za-z0-9_.\/-]+$/ && ($2 != "client" || ++told[$1] <= 20)
' | xargs sh -c '[ $# = 0 ] ||
	exec find "$@" -prune -type f \( -size -8192 -print -o -name result.json -exec printf "large %s\n" {} \; \)' find 2>/dev/null | LC_ALL=C awk '
$1 == "large" {
	start = "head -c 1048577 " $2 " | tr \"\\n\" \" \""
	if ((start | getline line) > 0) printf "file %s\t%s\n", $2, line
	close(start)
	next
}
{
	most = $0 ~ /agent\.json$/ ? 4194304 : $0 ~ /result\.json$/ ? 1048577 : 100000
	if ((getline line < $0) > 0) printf "file %s\t%s\n", $0, substr(line, 1, most)
	close($0)
}'
for mu_dir; do
	case $mu_dir in *[!A-Za-z0-9_-]*) ;; *) [ -e "$mu_dir" ] || printf 'gone %s\n' "$mu_dir" ;; esac
done
printf 'tails\n'
# /dev/null makes tail write its headers even when there is one file only.
mu_tails | xargs tail -c 600 /dev/null 2>/dev/null || :
