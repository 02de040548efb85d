# shellcheck shell=sh
# start ID MEMORY COLS ROWS [PROGRAM]: a tmux session for the agent; prints what PROGRAM, its client, says of its version.
# 17: it runs already. 5: the limit cannot be kept.
(mu_enter "$1") || exit
[ ! -h "$mu_home/work/$1" ] || die 1 "the work dir was replaced by a link: $mu_home/work/$1"
# Neither a link in the place of the file nor one that is made in this moment is written through.
rm -f "$mu_home/agents/$1/launch-env" "$mu_home/agents/$1/cgroup"
set -C
(
	mu_users_locale
	export -p
	printf 'umask %s\n' "$mu_umask"
) >"$mu_home/agents/$1/launch-env"
set +C
mu_id=$1 mu_memory=$2 mu_cols=$3 mu_rows=$4 mu_client=${5-}
mu_dir=$mu_home/agents/$mu_id
command -v tmux >/dev/null || die 1 "tmux is not installed"

# Where the tmux server died, a process that does not heed a hang-up lives on: two of one agent must not.
if [ -f "$mu_dir/ev/started" ] && ! mu_tmux has-session -t "=$mu_id:" 2>/dev/null; then
	sh "$mu_dir/bin/reap" "$mu_id" 20
fi

if [ "$mu_memory" != 0 ]; then
	if [ -f /sys/fs/cgroup/cgroup.controllers ] && grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
		mu_group=/sys/fs/cgroup/muster-$mu_id mu_knob=memory.max
	elif [ -d /sys/fs/cgroup/memory ]; then
		mu_group=/sys/fs/cgroup/memory/muster-$mu_id mu_knob=memory.limit_in_bytes
	else
		die 5 "this host has no memory cgroup"
	fi
	mkdir -p "$mu_group" 2>/dev/null || die 5 "no right to make the cgroup $mu_group"
	{ echo "$mu_memory" >"$mu_group/$mu_knob"; } 2>/dev/null || die 5 "no right to set $mu_group/$mu_knob"
	printf '%s\n' "$mu_group" >"$mu_dir/cgroup"
fi

mu_conf=$(cat <<'END'
# Written by muster for its own tmux server. Your tmux server and its configuration are not touched.
set -s exit-empty on
set -s escape-time 20
set -s focus-events on
set -g default-terminal "tmux-256color"
set -g remain-on-exit on
set -gq remain-on-exit-format ""
set -g history-limit 5000
set -g update-environment ""
set -g window-size latest
set -g status-style "bg=default,fg=colour244"
set -g status-left "#{@agent}  "
set -g status-left-length 70
set -g status-right "#{?pane_dead,ended #{?pane_dead_signal,by signal #{pane_dead_signal},with exit code #{?#{==:#{pane_dead_status},},#{@code},#{pane_dead_status}}}; ,}detach: #{prefix} d "
set -g status-right-length 60
set -g window-status-format ""
set -g window-status-current-format ""
set -g status-interval 1
END
)
# Another version of muster may have written it.
if [ "$(cat "$mu_home/tmux.conf" 2>/dev/null)" != "$mu_conf" ]; then
	printf '%s\n' "$mu_conf" >"$mu_home/.conf.$mu_id"
	mv -f "$mu_home/.conf.$mu_id" "$mu_home/tmux.conf"
fi

# What a line of its screen looks like while it tries again, what the selected entry of a menu does, and whether the cursor is hidden
# then: `survey` asks tmux for these.
set --
for mu_name in retries choice cursor; do
	[ -s "$mu_dir/$mu_name" ] || continue
	mu_look=$(cat "$mu_dir/$mu_name")
	# A semicolon at the end of a word would end the command.
	case $mu_look in *\;) mu_look=${mu_look%;}'\;' ;; esac
	set -- "$@" ';' set-option "@$mu_name" "$mu_look"
done
# The wrapper reports how the program ended. If it was killed too, tmux does.
if [ -s "$mu_dir/notify/command" ]; then
	# shellcheck disable=SC2016  # for the shell that tmux starts
	set -- "$@" ';' set-hook pane-died 'run-shell -b '\''[ "#{pane_id}" != "#{@pane}" ] || exec sh "$MUSTER_AGENT_DIR/bin/notify" died "#{pane_dead_status}" "#{pane_dead_signal}"'\'
fi

# The server's own environment is small and the same for all: an agent's comes by its wrapper.
mu_try=0
while :; do
	mu_said=$(env -i HOME="$HOME" PATH="$PATH" SHELL=/bin/sh LANG="${LANG:-C.UTF-8}" TERM=xterm-256color \
		tmux -S "$mu_sock" -f "$mu_home/tmux.conf" -u new-session -d -P -F '#{pid}' -s "$mu_id" -x "$mu_cols" -y "$mu_rows" \
		-e "MUSTER_AGENT_ID=$mu_id" -e "MUSTER_AGENT_DIR=$mu_dir" -c / sh "$mu_dir/bin/wrap" "$mu_dir" \
		\; set-option @agent "$mu_id" \; set-option -F @pane '#{pane_id}' "$@" 2>&1) && break
	case $mu_said in
	*duplicate*)
		# None is its own where the agent closed that one and has others.
		# shellcheck disable=SC2154  # mu_own comes from lib.sh
		if mu_dead=$(mu_tmux list-panes -s -t "=$mu_id:" -f "$mu_own" -F '#{pane_dead}'); then
			[ "$mu_dead" != 0 ] || die 17 "it runs already"
			mu_tmux kill-session -t "=$mu_id:" || :
		fi
		;;
	# The server was just ending with its last session; the next try starts a new one.
	*exited* | *lost* | *connecting* | *"no server"*) sleep 0.1 ;;
	*) die 1 "tmux: $mu_said" ;;
	esac
	mu_try=$((mu_try + 1))
	[ "$mu_try" -lt 30 ] || die 1 "tmux: $mu_said"
done
# Another start may write it at the same time: the same number.
printf '%s\n' "$mu_said" >"$mu_home/.pid.$mu_id" && mv -f "$mu_home/.pid.$mu_id" "$mu_home/tmux.pid"
# Only now: while the client starts.
[ -z "$mu_client" ] || mu_version "$mu_client" || :
