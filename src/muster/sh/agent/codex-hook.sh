#!/bin/sh
# codex KIND [FIELD=KEY]…: a hook of Codex, told on by `hook`. Its errands (they have no transcript) and what its subagents do are
# no turns of the agent. A dialog and the end of a turn are watched, since not all of both is told by hooks.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
said=$(head -c 4000000)
about=${said%%,\"cwd\":*}
where=$(printf %s "$about" | sed -n 's/.*"transcript_path":"\([^"\\]*\)".*/\1/p')
[ -n "$where" ] && [ -d "$dir/client" ] || exit 0
grep -qsxF -e "$where" "$dir/client/threads" || printf '%s\n' "$where" >>"$dir/client/threads"

case $about in *'"agent_id":"'*) own= ;; *) own=1 ;; esac
tell() { [ -z "$own" ] || printf %s "$said" | sh "$dir/bin/hook" "$@"; }
ruled() { [ -z "$own" ] || sh "$dir/bin/event" answered "\"rule\":\"$rule\""; }
beside() { sh "$dir/bin/watch" "$@" </dev/null >/dev/null 2>&1 & }

rule=
if [ -f "$dir/client/rules" ]; then
	case $1 in tool | permission) rule=$(printf %s "$said" | sh "$dir/bin/rule" "$dir/client/rules") ;; esac
fi
case $1,$rule in
permission,allow | permission,deny)
	printf '{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"%s"}}}\n' "$rule"
	ruled
	;;
permission,*)
	printf %s "$said" >"$dir/client/dialog.$$"
	beside dialog "$dir/client/dialog.$$" "$@"
	;;
tool,deny)
	printf '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"%s"}}\n' \
		"a rule of the user denies it"
	tell "$@"
	ruled
	;;
prompt,*)
	tell "$@"
	[ -n "$own" ] || exit 0
	turn=$(printf %s "$about" | sed -n 's/.*"turn_id":"\([0-9a-f-]*\)".*/\1/p')
	# Text that steers a turn comes by the same hook: the turn is watched already.
	if [ "$turn" != "$(cat "$dir/client/turn" 2>/dev/null)" ]; then
		printf '%s\n' "$turn" >"$dir/client/turn"
		beside turn "$where" "$turn"
	fi
	;;
*) tell "$@" ;;
esac
