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

# Print what the model called this command with, beyond what the hook is told: `escalated` if it asks to run outside the sandbox
# (then Codex opens its dialog), `shell` if it names another shell. The call is in the rollout before the hook runs. Only keys of the
# call itself count, not what stands inside their values.
called() {
	call=$(printf %s "$said" | sed -n 's/.*"tool_use_id":"\([^"\\]*\)"[^"]*$/\1/p')
	[ -n "$call" ] || return 0
	LC_ALL=C grep -aF "\"call_id\":\"$call\"" "$where" | LC_ALL=C grep -aF '"type":"function_call",' | tail -n 1 | LC_ALL=C awk '
	{
		at = index($0, "\"arguments\":\"")
		text = substr($0, at + 13)
		if (!at || length(text) > 1000000) exit
		# First the characters of the string, then the object that they are.
		for (i = 1; i <= length(text); i++) {
			c = substr(text, i, 1)
			if (c == "\"") break
			if (c == "\\") c = substr(text, ++i, 1)
			char[++n] = c
		}
		for (i = 1; i <= n; i++) {
			c = char[i]
			if (c == "{" || c == "[") { depth++; key = depth == 1 }
			else if (c == "}" || c == "]") depth--
			else if (c == "," && depth == 1) key = 1
			else if (c == "\"") {
				word = ""
				for (i++; i <= n && char[i] != "\""; i++) {
					if (char[i] == "\\") word = word char[i++]
					if (depth == 1 && length(word) < 100) word = word char[i]
				}
				if (depth != 1) continue
				if (key) { name = word; key = 0; if (name == "shell" || name ~ /\\/) print "shell" }
				else if (name == "sandbox_permissions" && word == "require_escalated") print "escalated"
			}
		}
	}'
}
refuse() {
	printf '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"%s"}}\n' "$1"
}

rest=${said#*\"tool_name\":\"}
rule=
if [ -f "$dir/client/rules" ]; then
	case $1 in tool | permission) rule=$(printf %s "$said" | sh "$dir/bin/rule" "$dir/client/rules") ;; esac
	# No rule is about what another shell makes of a command.
	case $1,$rest in tool,'Bash"'* | permission,'Bash"'*) call=$(called) ;; *) call= ;; esac
	case $call,$rule in *shell*,allow | *shell*,) rule=ask ;; esac
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
	case $call in
	*escalated*) ;;
	*)
		refuse "No rule of the user allows this command. Run it again with sandbox_permissions set to require_escalated and a justification, so that the user is asked."
		ruled
		;;
	esac
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
