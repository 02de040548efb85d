#!/bin/sh
# wrap DIR: the process in an agent's pane. It sets the environment, records the terminal, keeps the
# time-out, and writes down how the agent's process began and ended. Every agent has its own copy.
dir=$1
MUSTER_AGENT_DIR=$dir
export MUSTER_AGENT_DIR
pane_term=$TERM
# The agent may have left links in its folder. What this process writes goes into the folder itself.
for part in rec ev session notify tmp socket timed-out; do
	[ ! -h "$dir/$part" ] || rm -f "$dir/$part"
done
mkdir -p "$dir/rec" "$dir/ev"
# Where the terminal can be asked about; the agent itself does not see it.
{ printf '%s\n' "${TMUX%%,*}" >"$dir/socket"; } 2>/dev/null

# The caller's environment, without what belongs to an outer session of another agent: a client may be running muster.
if [ -f "$dir/launch-env" ]; then
	# shellcheck disable=SC1091
	. "$dir/launch-env"
	# The command of [notify] gets it as it was, see bin/notify.
	[ ! -s "$dir/notify/command" ] || mv -f "$dir/launch-env" "$dir/notify/env"
	rm -f "$dir/launch-env"
fi
names=$(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p')
# Each file in unset/ is from one client: the variables that it sets for what it starts, one extended regular expression a line.
# shellcheck disable=SC2016  # awk's own
for name in $({ cat "$dir"/unset/*; printf '\n=\n%s\n' "$names"; } 2>/dev/null | LC_ALL=C awk '
	$0 == "" { next }
	$0 == "=" { names = 1; next }
	!names { pattern = pattern "|" $0; next }
	pattern != "" && $0 ~ "^(" substr(pattern, 2) ")$"'); do
	unset "$name"
done
for name in $names; do
	case $name in
	TMUX | TMUX_* | STY | WINDOW | OLDPWD | COLUMNS | LINES) unset "$name" ;;
	GIT_DIR | GIT_WORK_TREE | GIT_INDEX_FILE | GIT_OBJECT_DIRECTORY | GIT_ALTERNATE_OBJECT_DIRECTORIES | GIT_PREFIX | \
		GIT_COMMON_DIR | GIT_NAMESPACE | GIT_CONFIG_PARAMETERS | GIT_SHALLOW_FILE | GIT_GRAFT_FILE | GIT_QUARANTINE_PATH | \
		GIT_REFLOG_ACTION | GIT_INTERNAL_*) unset "$name" ;;
	MUSTER_AGENT | MUSTER_AGENT_* | MUSTER_NOTIFY_* | MUSTER_RESULT | MUSTER_RESULT_KEY | MUSTER_PROMPT) unset "$name" ;;
	esac
done
# Begun inside another agent: its programs are not this one's.
case :$PATH in
*:*/agents/*/bin/path:*)
	PATH=$(printf %s "$PATH" | awk -v RS=: -v ORS= '$0 !~ /\/agents\/[^\/]*\/bin\/path$/ { print (NR > 1 && told ? ":" : "") $0; told = 1 }')
	;;
esac
MUSTER_AGENT_DIR=$dir
MUSTER_AGENT_ID=${dir##*/}
TERM=$pane_term
MUSTER_RESULT=$dir/result.json
PATH=$dir/bin/path:$PATH
# A tmux that the agent starts is neither the user's server nor the one it lives in.
TMUX_TMPDIR=$dir/tmp
private=''
if [ ${#TMUX_TMPDIR} -ge 80 ]; then
	# The path of a socket must be short. Anybody may have made a folder of that name in /tmp, or a link.
	shared=/tmp/muster-$(id -u)
	mkdir -m 700 "$shared" 2>/dev/null
	if [ -n "$(find "$shared" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; then
		TMUX_TMPDIR=$shared/${dir##*/}
	else
		private=$(mktemp -d /tmp/muster.XXXXXX) && TMUX_TMPDIR=$private
	fi
fi
mkdir -p "$TMUX_TMPDIR"
export TERM MUSTER_AGENT_DIR MUSTER_AGENT_ID MUSTER_RESULT PATH TMUX_TMPDIR
# shellcheck disable=SC1091
. "$dir/env"
# shellcheck disable=SC1091
[ ! -f "$dir/bin/layer" ] || . "$dir/bin/layer"
timeout=0 cap=67108864 launch=1
# shellcheck disable=SC1091
. "$dir/launch"
[ ! -f "$dir/cgroup" ] || echo $$ >"$(cat "$dir/cgroup")/cgroup.procs" 2>/dev/null
if [ -f "$dir/prompt" ] && [ "$launch" = 1 ]; then
	MUSTER_PROMPT=$(cat "$dir/prompt" && printf x)
	MUSTER_PROMPT=${MUSTER_PROMPT%x}
	export MUSTER_PROMPT
fi
if command -v git >/dev/null && ! git -C "$(cat "$dir/cwd")" config user.email >/dev/null 2>&1; then
	# Commits must not fail for want of a name; a configured one is always used instead.
	: "${GIT_AUTHOR_NAME:=$MUSTER_AGENT}" "${GIT_AUTHOR_EMAIL:=$MUSTER_AGENT@muster.invalid}"
	: "${GIT_COMMITTER_NAME:=$GIT_AUTHOR_NAME}" "${GIT_COMMITTER_EMAIL:=$GIT_AUTHOR_EMAIL}"
	export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
fi

event() { sh "$dir/bin/event" "$@"; }

# The kernel hangs up the terminal when tmux or the pane goes away. Nobody could reach the agent any more, so it ends, with
# everything that it started.
hangup() {
	woke=1 why=hangup
	trap '' HUP
	sh "$dir/bin/reap" "${dir##*/}" 100 $$ </dev/null >/dev/null 2>&1
}
woke='' why='' watchdog='' recorder=''
trap hangup HUP
trap 'woke=1' INT TERM

rm -f "$dir/timed-out"
event started "\"pid\":$$,\"launch\":$launch"
if [ "$timeout" != 0 ]; then
	(
		trap '' HUP INT
		sleep "$timeout" &
		trap 'kill "$!"; exit' TERM
		wait "$!" || exit
		: >"$dir/timed-out"
		exec sh "$dir/bin/reap" "${dir##*/}" 100 $$
	) </dev/null >/dev/null 2>&1 &
	watchdog=$!
fi
code=0 n=1
# The recorder takes the next free number; `list` finds the newest by this name.
while [ -e "$dir/rec/$n.raw" ]; do n=$((n + 1)); done
ln -sf "$n.raw" "$dir/rec/tail"
if [ "$why" = hangup ]; then
	code=129 # its session was gone before it began
elif cd "$(cat "$dir/cwd")"; then
	eval "set -- $(cat "$dir/argv")"
	exec 8<&0
	# A shell handles a signal only between two commands, but interrupts `wait` for it: so the recorder runs in the background.
	# There a shell ignores INT and QUIT and reads /dev/null; env and fd 8 undo that.
	if env --default-signal=INT,QUIT true 2>/dev/null; then
		env --default-signal=INT,QUIT sh "$dir/bin/recorder" "$dir/rec" "$cap" "$@" <&8 8<&- &
		recorder=$!
		[ "$why" != hangup ] || hangup # it came just before the recorder was there to be ended
		while :; do
			woke='' code=0
			wait "$recorder" || code=$?
			# An interrupted `wait` returns before the recorder has ended.
			if [ -z "$woke" ] || ! kill -0 "$recorder" 2>/dev/null; then break; fi
		done
	else
		# Without that option of env the agent must run in the foreground: look every few seconds whether the terminal is there.
		(
			trap '' HUP INT
			trap 'kill "$!"; exit' TERM
			while :; do
				sleep 3 &
				wait "$!"
				[ -t 8 ] || break
			done
			exec sh "$dir/bin/reap" "${dir##*/}" 100 $$
		) </dev/null >/dev/null 2>&1 &
		lookout=$!
		sh "$dir/bin/recorder" "$dir/rec" "$cap" "$@" 8<&- || code=$?
		kill "$lookout" 2>/dev/null
	fi
else
	printf 'muster: the work dir is gone: %s\n' "$(cat "$dir/cwd")"
	code=1
fi
if [ -f "$dir/timed-out" ]; then
	why=timeout
	# It ends all that carries the agent's id, and would end what tells of it too.
	wait "$watchdog"
fi
event exit "\"code\":$code${why:+,\"why\":\"$why\"}"
# For the status line: tmux itself may miss the status of a process that ends while its pane is closed.
[ -n "$why" ] || tmux -S "$(cat "$dir/socket")" set-option -t "=${dir##*/}:" @code "$code" </dev/null >/dev/null 2>&1
[ -z "$watchdog" ] || [ "$why" = timeout ] || kill "$watchdog" 2>/dev/null
[ -z "$private" ] || rm -rf "$private"
exit "$code"
