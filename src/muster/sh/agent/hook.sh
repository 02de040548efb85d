#!/bin/sh
# hook KIND [FIELD=KEY]…: an event of the agent, from what a hook of its client says: one JSON object on stdin.
# KEY is a key of that object whose value is a string, ~KEY the first of that name at any depth. Values travel as the JSON they
# are, no shell looks into them; a long one is cut in the event, and what was heard (KIND prompt) is kept whole in heard.json.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
kind=$1
shift
[ -d "$dir/ev" ] || exit 0
# ready-again: at its first launch the agent is not ready, it has a message to answer.
if [ "$kind" = ready-again ]; then
	if grep -qs 'launch=1$' "$dir/launch"; then exit 0; fi
	kind=ready
fi
fields=$(head -c 4000000 | LC_ALL=C awk -v want="$*" -v heard="$([ "$kind" != prompt ] || printf %s "$dir/heard.$$")" '
function without(text, escape, at, slashes) {
	# The text without this escape at its end. A backslash begins one only as the last of an odd number.
	if (!match(text, "\\\\+" escape "$")) return text
	at = RSTART
	match(substr(text, at), /^\\+/)
	slashes = RLENGTH
	return slashes % 2 ? substr(text, 1, at + slashes - 2) : text
}
function short(text) {
	if (length(text) <= 4000) return text
	text = substr(text, 1, 3990)
	sub(/[\300-\377][\200-\277]*$/, "", text)
	text = without(text, "(u[0-9a-fA-F]?[0-9a-fA-F]?[0-9a-fA-F]?)?")
	return without(text, "u[dD][89abAB][0-9a-fA-F][0-9a-fA-F]") "…\""
}
BEGIN {
	count = split(want, pairs, " ")
	for (i = 1; i <= count; i++) {
		at = index(pairs[i], "=")
		name[substr(pairs[i], at + 1)] = substr(pairs[i], 1, at - 1)
	}
	left = count
}
{ text = text $0 }
END {
	size = length(text)
	for (i = 1; i <= size && left > 0; i++) {
		char = substr(text, i, 1)
		if (char == "\"") {
			start = i
			for (i++; i <= size && (char = substr(text, i, 1)) != "\""; i++) if (char == "\\") i++
			found = substr(text, start, i - start + 1)
			if (!value) { key = substr(found, 2, length(found) - 2); continue }
			value = 0
			for (form = 1; form <= 2; form++) {
				asked = form == 1 ? key : "~" key
				if (!(asked in name) || (form == 1 && depth != 1)) continue
				if (heard != "" && name[asked] == "text") printf "%s", found > heard
				printf "%s\"%s\":%s", told++ ? "," : "", name[asked], short(found)
				delete name[asked]
				left--
			}
		} else if (char == ":") value = 1
		else if (char == "{" || char == "[") { depth++; value = 0 }
		else if (char == "}" || char == "]") depth--
		else if (char == ",") value = 0
	}
}')
if [ -f "$dir/heard.$$" ]; then mv -f "$dir/heard.$$" "$dir/heard.json"; fi
# What the turn cost. The client writes its last words down a moment after it tells of them: it is counted again then. In the
# middle of a turn it is counted a moment later, once for all tools that are used until then; one that was killed waits no more.
if [ -f "$dir/bin/tally" ]; then
	where=$(printf %s "$fields" | sed -n 's/.*"where":"\([^"\\]*\)".*/\1/p')
	case $where,$kind in
	,*) ;;
	?*,tool)
		[ -z "$(find "$dir/.tally" -prune -mmin +1 2>/dev/null)" ] || rmdir "$dir/.tally"
		if mkdir "$dir/.tally" 2>/dev/null; then
			(sleep 2 && rmdir "$dir/.tally" && sh "$dir/bin/tally" "$where") </dev/null >/dev/null 2>&1 &
		fi
		;;
	*) (sh "$dir/bin/tally" "$where" && sleep 1 && sh "$dir/bin/tally" "$where") </dev/null >/dev/null 2>&1 & ;;
	esac
fi
# A question of the client comes by the same door as a permission.
case $kind,$fields in
permission,*'"tool":"AskUserQuestion"'*) kind=ask ;;
# A turn that failed for want of quota waits for a moment that the client names; a server that is only busy is no limit.
error,*'"error":"rate_limit"'*"hit your"* | error,*"hit your"*'"error":"rate_limit"'*) kind=limit ;;
esac
exec sh "$dir/bin/event" "$kind" "$fields"
