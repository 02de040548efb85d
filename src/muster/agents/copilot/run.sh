#!/bin/sh
# copilot start|resume SESSION [ARGS…]: GitHub Copilot CLI in its terminal, with a configuration folder of this agent's own. What the user
# has in theirs is linked or copied, so it is in effect; what the client writes down stays here.
dir=$MUSTER_AGENT_DIR
mine=$dir/client/home
how=$1 id=$2
shift 2
# Begun inside another agent: its folder is not the user's.
if [ -n "${COPILOT_HOME-}" ] && [ -f "$COPILOT_HOME/.muster" ]; then
	COPILOT_HOME=$(cat "$COPILOT_HOME/.muster")
fi
theirs=${COPILOT_HOME:-$HOME/.copilot}
mkdir -p "$mine/extensions/muster" "$mine/session-state"
printf %s "${COPILOT_HOME-}" >"$mine/.muster"
for file in "$mine"/* "$mine"/extensions/*; do
	if [ -h "$file" ] && [ ! -e "$file" ]; then rm -f "$file"; fi
done
for file in "$theirs"/* "$theirs"/extensions/*; do
	name=${file#"$theirs"/}
	case $name in
	# What the client writes down of its runs.
	*.lock | *.db | *.db-* | *-state | *-state.json | config.json | settings.json | extensions | extensions/muster | ide | logs | restart | tmp) ;;
	*) [ ! -e "$file" ] || [ -e "$mine/$name" ] || ln -s "$file" "$mine/$name" ;;
	esac
done
cp "$dir/client/muster.mjs" "$mine/extensions/muster/extension.mjs"

# with FILE MEMBER: the JSON object in FILE with one more member. Of one that is there twice the last counts.
with() {
	{ cat "$1" 2>/dev/null || :; } | MEMBER=$2 awk '
	{ text = text $0 "\n" }
	END {
		if (!sub(/,?[ \t\r\n]*}[ \t\r\n]*$/, "", text)) text = "{"
		print text (text ~ /"/ ? "," : "") ENVIRON["MEMBER"] "}"
	}'
}
# The work dir comes from a folder of the user's, in which the agent was asked for.
if [ -f "$dir/client/trusted" ]; then
	with "$theirs/config.json" "\"trustedFolders\":$(cat "$dir/client/trusted")" >"$mine/config.json"
else
	cp "$theirs/config.json" "$mine/config.json" 2>/dev/null
fi
chmod 600 "$mine/config.json" 2>/dev/null
# With rules the client asks for what they do not cover, whatever mode the user has.
if [ -f "$dir/client/manual" ]; then
	with "$theirs/settings.json" '"defaultPermissionMode":"manual"' >"$mine/settings.json"
elif [ -f "$theirs/settings.json" ]; then
	cp "$theirs/settings.json" "$mine/settings.json"
fi
COPILOT_HOME=$mine
COPILOT_CLI_ENABLED_FEATURE_FLAGS=${COPILOT_CLI_ENABLED_FEATURE_FLAGS:+$COPILOT_CLI_ENABLED_FEATURE_FLAGS,}EXTENSIONS
export COPILOT_HOME COPILOT_CLI_ENABLED_FEATURE_FLAGS

# A conversation to go on with, put where the client looks for it.
if [ -f "$dir/session/client.jsonl" ] && [ ! -e "$mine/session-state/$id" ]; then
	mkdir -p "$mine/session-state/$id"
	mv "$dir/session/client.jsonl" "$mine/session-state/$id/events.jsonl"
fi
# /clear begins another conversation: the one that was open last is gone on with.
last=$(sed -n 's/.*"where":"[^"\\]*\/\([0-9a-f]\{8\}-[0-9a-f-]\{27\}\)\/events\.jsonl".*/\1/p' "$dir/ev/session" 2>/dev/null)
[ "$how" != resume ] || [ ! -f "$mine/session-state/${last:-none}/events.jsonl" ] || id=$last
if [ -n "${MUSTER_PROMPT-}" ]; then
	printf %s "$MUSTER_PROMPT" >"$dir/client/first"
	unset MUSTER_PROMPT
fi
if [ -f "$mine/session-state/$id/events.jsonl" ]; then
	exec copilot --resume="$id" "$@"
fi
exec copilot --session-id="$id" "$@"
