# shellcheck shell=sh disable=SC2154  # $dir is the wrapper's
# layer: Claude Code's configuration folder for this agent alone, read by the wrapper before each launch. All that the user has in
# their own is linked, so it is in effect; what the client keeps for itself stays here. The user's login is used in place, with the
# client's own lock on it, so that any number of agents refresh it in turn.
mine=$dir/client/home
# Begun inside another agent: its layer is not the user's folder.
if [ -n "${CLAUDE_CONFIG_DIR:-}" ] && [ -f "$CLAUDE_CONFIG_DIR/.muster" ]; then
	CLAUDE_CONFIG_DIR=$(cat "$CLAUDE_CONFIG_DIR/.muster")
	unset CLAUDE_CODE_SANDBOXED CLAUDE_SECURESTORAGE_CONFIG_DIR
fi
theirs=${CLAUDE_CONFIG_DIR:-$HOME/.claude}
state=${CLAUDE_CONFIG_DIR:-$HOME}/.claude.json
mkdir -p "$mine" "$dir/client/status"
printf '%s' "${CLAUDE_CONFIG_DIR:-}" >"$mine/.muster"
for file in "$mine"/* "$mine"/.[!.]*; do
	if [ -h "$file" ] && [ ! -e "$file" ]; then rm -f "$file"; fi
done
# The client writes its status files where muster reads them.
[ -e "$mine/sessions" ] || ln -s ../status "$mine/sessions"
for file in "$theirs"/* "$theirs"/.[!.]*; do
	case ${file##*/} in
	# What the client writes down of its runs; two clients do not share that.
	.claude.json* | .muster | .last-* | backups | cache | daemon* | debug | file-history | history.jsonl | ide | image-cache | \
		jobs | paste-cache | session-env | sessions | shell-snapshots | stats-cache.json | statsig | tasks | telemetry | todos) ;;
	*) [ ! -e "$file" ] || [ -e "$mine/${file##*/}" ] || ln -sf "$file" "$mine/${file##*/}" ;;
	esac
done

# Its state begins as the user's, with what it would ask at its first start answered: whoever gave this key to the agent means it
# to be used, unless the user has said otherwise to the client. Of a key that comes twice the last one counts.
more='"hasCompletedOnboarding":true'
key=${ANTHROPIC_API_KEY:-}
[ ${#key} -le 20 ] || key=${key#"${key%????????????????????}"}
case $key in
'' | *[!A-Za-z0-9_-]*) ;;
*) grep -qsF -e "\"$key\"" "$state" || more="$more,\"customApiKeyResponses\":{\"approved\":[\"$key\"],\"rejected\":[]}" ;;
esac
# What the user decided for the project (allowed servers, trusted imports) counts in the work dir too. A JSON value ends where the brackets
# outside of its strings are closed.
PROJECT=$(cat "$dir/client/project" 2>/dev/null) WORK=$(cd "$(cat "$dir/workdir")" 2>/dev/null && pwd -P)
export PROJECT WORK
{ cat "$state" 2>/dev/null || :; } | awk -v more="$more" '
function value_length(text, i, c, depth, quoted) {
	for (i = 1; i <= length(text); i++) {
		c = substr(text, i, 1)
		if (quoted && c == "\\") i++
		else if (c == "\"") quoted = !quoted
		else if (!quoted && c == "{") depth++
		else if (!quoted && c == "}" && --depth == 0) return i
	}
	return 0
}
function project(key, at, rest) {
	key = "\"" ENVIRON["PROJECT"] "\""
	if (!match(text, /"projects"[ \t\r\n]*:[ \t\r\n]*{/) || key == "\"\"" || (ENVIRON["PROJECT"] ENVIRON["WORK"]) ~ /["\\]/) return
	at = index(substr(text, RSTART), key)
	if (!at) return
	at += RSTART - 1
	rest = substr(text, at + length(key))
	sub(/^[ \t\r\n]*:[ \t\r\n]*/, "", rest)
	if (substr(rest, 1, 1) != "{") return
	text = substr(text, 1, at - 1) "\"" ENVIRON["WORK"] "\":" substr(rest, 1, value_length(rest)) "," substr(text, at)
}
{ text = text $0 "\n" }
END {
	project()
	if (!sub(/}[ \t\r\n]*$/, "", text)) text = "{"
	print text (text ~ /"/ ? "," : "") more "}"
}' >"$mine/.claude.json"
unset PROJECT WORK

# The user's own mode stays in effect, auto mode too if that is the one.
if [ -f "$dir/client/settings.json" ] && grep -qs '"defaultMode"' "$theirs/settings.json"; then
	auto='"disableAutoMode": "disable", '
	! grep -qs '"defaultMode"[[:space:]]*:[[:space:]]*"auto"' "$theirs/settings.json" || auto=
	sed "s/\"disableAutoMode\": \"disable\", \"defaultMode\": \"default\"/$auto\"additionalDirectories\": []/" \
		"$dir/client/settings.json" >"$dir/client/.settings" && mv -f "$dir/client/.settings" "$dir/client/settings.json"
fi

export CLAUDE_SECURESTORAGE_CONFIG_DIR="${CLAUDE_SECURESTORAGE_CONFIG_DIR-${CLAUDE_CONFIG_DIR:-}}"
export CLAUDE_CONFIG_DIR="$mine"
# The work dir comes from a folder of the user's, in which the agent was asked for.
[ ! -f "$dir/client/trusted" ] || export CLAUDE_CODE_SANDBOXED=1

# A conversation to go on with, put where the client looks for it: in a folder that is called by the work dir.
if [ -f "$dir/session/client.jsonl" ]; then
	name=$(cd "$(cat "$dir/cwd")" && pwd -P | tr -c 'A-Za-z0-9\n' -)
	mkdir -p "$mine/projects/$name"
	name=$mine/projects/$name/$(cat "$dir/client/key").jsonl
	[ -e "$name" ] || mv "$dir/session/client.jsonl" "$name"
fi
