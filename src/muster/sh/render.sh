# shellcheck shell=sh
# render COLS ROWS [-e] < bytes: the screen they end in, drawn by a tmux server that lives for this only.
mu_cols=$1 mu_rows=$2
shift 2
mu_users_locale
mu_tmp=$(mu_scratch)
cd "$mu_tmp" # the path of a socket must be short
trap 'tmux -S s kill-server 2>/dev/null; cd /; rm -rf "$mu_tmp"' EXIT
cat >raw
tmux -S s -f /dev/null -u new-session -d -x "$mu_cols" -y "$mu_rows" \
	sh -c 'cat raw; tmux -S s wait-for -S drawn; exec sleep 60' \; set-option status off
tmux -S s wait-for drawn
tmux -S s capture-pane -p "$@"
