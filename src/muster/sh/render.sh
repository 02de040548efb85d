# shellcheck shell=sh
# render COLS ROWS [-e] < bytes: the screen they end in, drawn by a tmux server that lives for this only.
mu_cols=$1 mu_rows=$2
shift 2
mu_tmp=$(mktemp -d)
trap 'tmux -S "$mu_tmp/s" kill-server 2>/dev/null; rm -rf "$mu_tmp"' EXIT
cat >"$mu_tmp/raw"
# shellcheck disable=SC2016  # expanded by the shell in the pane
tmux -S "$mu_tmp/s" -f /dev/null -u new-session -d -x "$mu_cols" -y "$mu_rows" \
	sh -c 'cat "$1/raw"; tmux -S "$1/s" wait-for -S drawn; exec sleep 60' draw "$mu_tmp" \; set-option status off
tmux -S "$mu_tmp/s" wait-for drawn
tmux -S "$mu_tmp/s" capture-pane -p "$@"
