#!/bin/sh
# codex KIND [FIELD=KEY]…: a hook of Codex. It passes the event on to `hook`, except for requests without a transcript (such as
# titles) and for subagents, which are no turns of the agent. It starts a watcher for each dialog and turn, since hooks do not
# report every end of either.
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
dialog() { printf %s "$said" >"$dir/client/dialog.$$" && beside dialog "$dir/client/dialog.$$" "$@"; }

# Whether the model itself asked to run this command outside the sandbox: then Codex opens its dialog. The hook is not told, but the
# call is in the rollout before the hook runs.
escalated() {
	call=$(printf %s "$said" | sed -n 's/.*"tool_use_id":"\([^"\\]*\)"[^"]*$/\1/p')
	[ -n "$call" ] && LC_ALL=C grep -aF "\"call_id\":\"$call\"" "$where" | grep -q '\\"sandbox_permissions\\": *\\"require_escalated\\"'
}
refuse() {
	printf '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"%s"}}\n' "$1"
}

rest=${said#*\"tool_name\":\"}
rule=
if [ -f "$dir/client/rules" ]; then
	case $1 in tool | permission) rule=$(printf %s "$said" | sh "$dir/bin/rule" "$dir/client/rules") ;; esac
fi
# A question to the user comes as a tool of this name; no hook tells when it is open.
case $1,$rule,$rest in
tool,,'request_user_input"'*)
	tell "$@"
	[ -z "$own" ] || dialog ask text=~question
	exit 0
	;;
esac
case $1,$rule in
permission,allow | permission,deny)
	printf '{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"%s"}}}\n' "$rule"
	ruled
	;;
permission,*) dialog "$@" ;;
tool,deny)
	refuse "a rule of the user denies it"
	tell "$@"
	ruled
	;;
tool,patch)
	refuse "No rule of the user allows patches. Make the change with a command that you run with sandbox_permissions set to require_escalated and a justification, so that the user is asked."
	tell "$@"
	ruled
	;;
tool,ask)
	tell "$@"
	if ! escalated; then
		refuse "No rule of the user allows this command. Run it again with sandbox_permissions set to require_escalated and a justification, so that the user is asked."
		ruled
	fi
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
