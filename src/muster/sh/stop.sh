# shellcheck shell=sh
# stop ID GRACE: keep the last screen, end every process of the agent, remove its session.
mu_id=$1 mu_grace=$2
mu_dir=$mu_home/agents/$mu_id
[ -d "$mu_dir" ] || die 3 "no agent $mu_id"
# shellcheck disable=SC2154  # mu_own comes from lib.sh
mu_dead=$(mu_tmux list-panes -s -t "=$mu_id:" -f "$mu_own" -F '#{pane_dead}' 2>/dev/null || echo none)
if [ "$mu_dead" != none ]; then
	# A full disk keeps nobody from ending an agent.
	{ mu_tmux capture-pane -p -e -S - -t "=$mu_id:" >"$mu_dir/screen.new" && mv -f "$mu_dir/screen.new" "$mu_dir/screen"; } \
		2>/dev/null || rm -f "$mu_dir/screen.new"
fi
[ "$mu_dead" != 0 ] || MUSTER_AGENT_DIR=$mu_dir sh "$mu_dir/bin/event" stopped || :
[ ! -f "$mu_dir/bin/reap" ] || sh "$mu_dir/bin/reap" "$mu_id" "$mu_grace" || :
rm -rf "/tmp/muster-$(id -u)/$mu_id" "$mu_dir/notify/env"
mu_tmux kill-session -t "=$mu_id:" 2>/dev/null || :
if [ -f "$mu_dir/cgroup" ]; then
	rmdir "$(cat "$mu_dir/cgroup")" 2>/dev/null || :
	rm -f "$mu_dir/cgroup"
fi
