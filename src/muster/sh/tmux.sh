# shellcheck shell=sh
# tmux VERB ID …: the few things that are done to a live session.
mu_verb=$1 mu_id=$2
shift 2
mu_users_locale
mu_pane="=$mu_id:"
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
keys) mu_tmux send-keys -t "$mu_pane" "$@" ;;
paste)
	# The text comes by stdin; -p brackets it, so that a newline in it does not submit.
	mu_tmux load-buffer -b "in-$mu_id" -
	mu_tmux paste-buffer -p -r -d -b "in-$mu_id" -t "$mu_pane"
	;;
*) die 2 "no such verb: $mu_verb" ;;
esac
