# shellcheck shell=sh
# tmux VERB ID …: the few things that are done to a live session.
mu_verb=$1 mu_id=$2
shift 2
mu_users_locale
mu_pane="=$mu_id:"

# When the client last told of a dialog or a tool: the beginning of each event, one line. It has no text of anybody in it.
mu_marks() {
	for mu_kind in permission ask tool; do
		mu_file=$mu_home/agents/$mu_id/ev/$mu_kind
		if [ -f "$mu_file" ] && [ ! -h "$mu_file" ]; then head -c 25 "$mu_file"; fi
		echo
	done | tr '\n' '|' | LC_ALL=C tr -cd '!-~'
}

# A pane in which somebody scrolls is in a mode of tmux that takes the keys: `copy-mode -q` ends it first.

# proven MARKS: end with 75 unless the screen still ends in the expected lines and the client told of nothing since. Nothing
# stands between this check and the key.
mu_proven() {
	# While this folder is there, a hook that tells of a tool does not return (see agent/event.sh), so that no dialog for it is opened
	# between the check and the moment at which the client has read the key.
	mkdir "$mu_home/agents/$mu_id/.press" 2>/dev/null || :
	trap mu_release EXIT
	[ "$(mu_marks)" = "$1" ] || die 75 "the client told of something new"
	mu_screen=$(tmux -u -S "$mu_sock" capture-pane -p -t "$mu_pane") || die 75 "there is no screen"
	case "
$mu_screen" in
	*"$mu_seen") ;;
	*) die 75 "the screen has changed" ;;
	esac
}
mu_release() { { sleep 0.2 || sleep 1; rmdir "$mu_home/agents/$mu_id/.press"; } </dev/null >/dev/null 2>&1 & }

# expected LINES: read what the screen has to end in from stdin. `read` takes no more than a line, so the rest stays in the pipe.
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
case $mu_verb in
attach)
	# A watcher that was cut off may have left the size fixed.
	mu_tmux set-option -uw -t "$mu_pane" window-size 2>/dev/null || :
	exec tmux -S "$mu_sock" -u attach-session -t "$mu_pane"
	;;
watch)
	# tmux ignores ignore-size where nobody else is attached; a size that is fixed stays.
	mu_tmux set-option -w -t "$mu_pane" window-size manual
	trap 'mu_tmux set-option -uw -t "$mu_pane" window-size 2>/dev/null || :' EXIT
	tmux -S "$mu_sock" -u attach-session -f read-only,ignore-size -t "$mu_pane"
	;;
socket) printf '%s\n' "$mu_sock" ;;
switch) mu_tmux switch-client -t "$mu_pane" ;;
screen) mu_tmux capture-pane -p -t "$mu_pane" "$@" ;;
size) mu_tmux list-panes -t "$mu_pane" -F '#{pane_width} #{pane_height}' ;;
resize) mu_tmux resize-window -t "$mu_pane" -x "$1" -y "$2" ;;
look)
	mu_now=$(date +%s.%N)
	printf '%s %s\n' "${mu_now%.*N}" "$(mu_marks)"
	tmux -u -S "$mu_sock" capture-pane -p -t "$mu_pane"
	;;
press) # MARKS LINES KEY…
	mu_was=$1
	mu_expected "$2"
	shift 2
	mu_proven "$mu_was"
	mu_tmux copy-mode -q -t "$mu_pane" \; send-keys -t "$mu_pane" "$@"
	;;
paste) # MARKS LINES
	# The text comes by stdin, behind the lines; -p brackets it, so that a newline in it does not submit.
	mu_expected "$2"
	mu_tmux load-buffer -b "in-$mu_id" -
	mu_proven "$1"
	mu_tmux copy-mode -q -t "$mu_pane" \; paste-buffer -p -r -d -b "in-$mu_id" -t "$mu_pane"
	;;
*) die 2 "no such verb: $mu_verb" ;;
esac
