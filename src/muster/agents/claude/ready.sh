#!/bin/sh
# ready [again]: a hook of Claude Code for the start of a session. The client draws its input box only after its hooks have returned,
# so `ready` is told a moment later, once the box is drawn. again: not at the first launch, which has a message to answer.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
[ -d "$dir/ev" ] || exit 0
if [ "${1-}" = again ] && grep -qs 'launch=1$' "$dir/launch"; then exit 0; fi

# drawn: between two lines across the screen stands one that begins with its sign. What is not drawn, but of another look, is taken
# for drawn in the end: `message` does not type into it.
drawn() {
	screen=$(tmux -u -S "$(cat "$dir/socket")" capture-pane -p -t "=${dir##*/}:") || exit 0
	printf '%s\n' "$screen" | LC_ALL=C awk '
		/^──────────/ { if (box) drawn = 1; box = 0; edge = 1; next }
		edge && /^(❯|>)/ { box = 1 }
		{ edge = 0 }
		END { exit !drawn }'
}
(
	launch=$(cat "$dir/ev/started") tries=0
	until drawn || [ $((tries += 1)) -gt 200 ]; do sleep 0.1 2>/dev/null || sleep 1; done
	[ "$launch" = "$(cat "$dir/ev/started")" ] || exit 0
	# A person was faster.
	# shellcheck disable=SC3013  # dash, bash and busybox have -nt
	[ "$dir/ev/prompt" -nt "$dir/ev/started" ] || exec sh "$dir/bin/event" ready
) </dev/null >/dev/null 2>&1 &
