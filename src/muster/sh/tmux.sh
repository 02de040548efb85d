# shellcheck shell=sh
# tmux VERB ID …: the few things that are done to a live session.
mu_verb=$1 mu_id=$2
shift 2
mu_users_locale
mu_pane="=$mu_id:"
mu_pressed=

# Print when the client last reported a dialog or a tool, and when that hook returned: the beginning of each file, as one line. It
# contains no text of the agent.
mu_marks() {
	for mu_file in ev/permission ev/ask ev/tool .returned; do
		mu_file=$mu_home/agents/$mu_id/$mu_file
		if [ -f "$mu_file" ] && [ ! -h "$mu_file" ]; then head -c 25 "$mu_file"; fi
		echo
	done | tr '\n' '|' | LC_ALL=C tr -cd '!-~'
}

# Print the milliseconds of a time as `date +%s.%N` prints it. Where that knows only seconds, so does this; what is no time is 0.
mu_ms() {
	mu_part=${1#*.}000
	case $1 in *N) mu_part=000 ;; esac
	mu_part=${mu_part%"${mu_part#???}"}
	case ${1%%.*}.$mu_part in
	.* | *[!0-9.]*) echo 0 ;;
	*) echo $((${1%%.*} * 1000 + 1$mu_part - 1000)) ;;
	esac
}

# If somebody scrolls, the pane is in a mode of tmux that takes the keys, so `copy-mode -q` ends that first.

# proven MARKS box|dialog: exit with 75 unless the screen still ends in the expected lines and the client has reported nothing since.
# The key must follow this check at once.
mu_proven() {
	# While this file is there, a hook that tells of a tool does not return (see agent/event.sh), so that no dialog for it is opened
	# between the check and the moment at which the client has read the key.
	mu_press=$mu_home/agents/$mu_id/.press
	mkdir -p "$mu_press" && : >"$mu_press/$$" || die 75 "nothing can be written"
	trap mu_release EXIT
	# A hook that looked for this file before it was there does not wait for it, however late it returns.
	[ "$2" != box ] || ! mu_in_flight || die 75 "a hook of the client is about to return"
	mu_told=$(mu_marks)
	[ "$mu_told" = "$1" ] || die 75 "the client told of something new"
	if [ "$2" = box ]; then mu_settled; fi
	mu_screen=$(tmux -u -S "$mu_sock" capture-pane -p -t "$mu_pane") || die 75 "there is no screen"
	case "
$mu_screen" in
	*"$mu_seen") ;;
	*) die 75 "the screen has changed" ;;
	esac
	[ -f "$mu_press/$$" ] || die 75 "this took too long, the client goes on"
	mu_pressed=1
}

# Return whether a hook that tells of a tool or a dialog has begun and not returned. What a killed hook left does not count.
mu_in_flight() {
	mu_flights=$(find "$mu_home/agents/$mu_id/.hooks" -type f -mmin -5 2>/dev/null) || :
	for mu_flight in $mu_flights; do
		mu_flight=${mu_flight##*/}
		case $mu_flight in *[!0-9]*) continue ;; esac
		! kill -0 "$mu_flight" 2>/dev/null || return 0
	done
	return 1
}

# A client draws the dialog for a tool a moment after the hook has returned. How long that moment is depends on how busy the host is, and
# so does how long this script took until now. The moment is waited for here, where no other hook can return meanwhile.
mu_settled() {
	mu_now=$(mu_ms "$(date +%s.%N)")
	mu_told=${mu_told%|}
	mu_age=$((mu_now - $(mu_ms "${mu_told##*|}")))
	# A time that is far ahead is that of a clock that was set back.
	[ "$mu_age" -ge -60000 ] || return 0
	mu_wait=$((2000 + 3 * (mu_now - mu_began) - mu_age))
	[ "$mu_wait" -gt 0 ] || return 0
	[ "$mu_wait" -le 6000 ] || die 75 "the host is too busy to tell what the client does next"
	sleep "$((mu_wait / 1000)).$(printf %03d $((mu_wait % 1000)))" 2>/dev/null || sleep $((mu_wait / 1000 + 1))
	# A hook that reports a tool is held meanwhile. One that reports a dialog may come too late to be held.
	mu_later=$(mu_marks)
	mu_later=${mu_later%|}
	[ "${mu_later%|*|*} ${mu_later##*|}" = "${mu_told%|*|*} ${mu_told##*|}" ] || die 75 "the client told of something new"
}

# Release the hooks once the client has read the key, which shows when it redraws its box. A screen may be half drawn, so it is read
# twice. For a client that ignores the key, this gives up after some seconds.
mu_release() {
	[ -n "$mu_pressed" ] || { rm -f "$mu_press/$$"; return; }
	{
		mu_tries=0 mu_other=0
		while [ -n "$mu_seen" ] && [ "$mu_other" -lt 2 ] && [ $((mu_tries += 1)) -le 40 ]; do
			mu_screen=$(tmux -u -S "$mu_sock" capture-pane -p -t "$mu_pane") || break
			case "
$mu_screen" in
			*"$mu_seen") mu_other=0 ;;
			*) mu_other=$((mu_other + 1)) ;;
			esac
			sleep 0.1 || sleep 1
		done
		sleep 0.1 || sleep 1
		rm -f "$mu_press/$$"
	} </dev/null >/dev/null 2>&1 &
}

# expected LINES: read the expected end of the screen from stdin. `read` takes one line at a time, so the rest stays in the pipe.
mu_expected() {
	mu_seen=
	mu_left=$1
	while [ "$mu_left" -gt 0 ]; do
		IFS= read -r mu_line || die 2 "there are fewer lines than were told"
		mu_seen="$mu_seen
$mu_line"
		mu_left=$((mu_left - 1))
	done
}

mu_show() {
	printf '%s\n' "$(mu_marks)"
	tmux -u -S "$mu_sock" display-message -p -t "$mu_pane" '#{?cursor_flag,#{cursor_y},-}' \; capture-pane -p -t "$mu_pane"
}

# Wait for up to two seconds until the screen no longer ends in the expected lines and looks the same twice.
mu_rests() {
	mu_tries=0 mu_was=
	while [ $((mu_tries += 1)) -le 40 ]; do
		sleep 0.05 2>/dev/null || sleep 1
		mu_screen=$(tmux -u -S "$mu_sock" capture-pane -p -t "$mu_pane") || return 0
		case "
$mu_screen" in
		*"$mu_seen") ;;
		*)
			[ "$mu_screen" != "$mu_was" ] || return 0
			mu_was=$mu_screen
			;;
		esac
	done
}
case $mu_verb in
attach)
	# An interrupted watcher may have left the size fixed.
	mu_tmux set-option -uw -t "$mu_pane" window-size 2>/dev/null || :
	exec tmux -S "$mu_sock" -u attach-session -t "$mu_pane"
	;;
watch)
	# tmux ignores ignore-size if nobody else is attached, so fix the size.
	mu_tmux set-option -w -t "$mu_pane" window-size manual
	trap 'mu_tmux set-option -uw -t "$mu_pane" window-size 2>/dev/null || :' EXIT
	tmux -S "$mu_sock" -u attach-session -f read-only,ignore-size -t "$mu_pane"
	;;
socket) printf '%s\n' "$mu_sock" ;;
switch) mu_tmux switch-client -t "$mu_pane" ;;
screen) mu_tmux capture-pane -p -t "$mu_pane" "$@" ;;
size) mu_tmux list-panes -t "$mu_pane" -F '#{pane_width} #{pane_height}' ;;
resize) mu_tmux resize-window -t "$mu_pane" -x "$1" -y "$2" ;;
look) mu_show ;;
press) # MARKS LINES box|dialog KEY…: with `box`, also not before it is certain that no dialog is about to open
	mu_began=$(mu_ms "$(date +%s.%N)")
	mu_was=$1 mu_where=$3
	mu_expected "$2"
	shift 3
	mu_proven "$mu_was" "$mu_where"
	mu_tmux copy-mode -q -t "$mu_pane" \; send-keys -t "$mu_pane" "$@"
	;;
paste) # MARKS LINES box|dialog [look]: with `look`, print what `look` does once the screen shows the text and rests
	mu_began=$(mu_ms "$(date +%s.%N)")
	# The text comes by stdin, behind the lines; -p brackets it, so that a newline in it does not submit.
	mu_expected "$2"
	mu_tmux load-buffer -b "in-$mu_id" -
	mu_proven "$1" "$3"
	mu_tmux copy-mode -q -t "$mu_pane" \; paste-buffer -p -r -d -b "in-$mu_id" -t "$mu_pane"
	if [ -n "${4-}" ]; then
		mu_release
		trap - EXIT
		mu_rests
		mu_show
	fi
	;;
*) die 2 "no such verb: $mu_verb" ;;
esac
