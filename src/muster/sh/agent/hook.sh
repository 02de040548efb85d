#!/bin/sh
# hook KIND [FIELD=KEY]… [OTHER?FIELD=PATTERN[&FIELD=PATTERN]…]…: turn the JSON object that a client passes to its hook on stdin
# into an event of the agent.
# KEY is a key of that object with a string as its value; ~KEY is the first key of that name at any depth. Values stay encoded as
# JSON; the shell never decodes them. Long values are shortened in the event; the whole text of a `prompt` is kept in heard.json.
# The event is of the kind OTHER if every FIELD of that word matches its PATTERN, a pattern of the shell's `case`.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
kind=$1
shift
[ -d "$dir/ev" ] || exit 0
# ready-again is `ready` for every launch but the first, which has a message to answer.
if [ "$kind" = ready-again ]; then
	if grep -qs 'launch=1$' "$dir/launch"; then exit 0; fi
	kind=ready
fi
want=
for word; do case $word in *\?*) ;; *) want="$want $word" ;; esac; done
fields=$(head -c 4000000 | LC_ALL=C awk -v want="$want" -v heard="$([ "$kind" != prompt ] || printf %s "$dir/heard.$$")" '
function without(text, escape, at, slashes) {
	# Remove this escape sequence from the end of the text. A backslash starts one only as the last of an odd number of them.
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
# Count the tokens. After a turn they are counted twice, because clients write the last answer to the transcript a moment after
# the hook. During a turn one count, two seconds later, serves all tools used until then; the lock of a killed count expires.
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
# matches FIELD=PATTERN[&FIELD=PATTERN]…
matches() {
	conditions="$1&"
	while [ -n "$conditions" ]; do
		condition=${conditions%%&*}
		conditions=${conditions#*&}
		value=
		case $fields in *"\"${condition%%=*}\":\""*) value=${fields#*"\"${condition%%=*}\":\""} ;; esac
		value=${value%%'","'*}
		value=${value%\"}
		# shellcheck disable=SC2254  # a pattern
		case $value in ${condition#*=}) ;; *) return 1 ;; esac
	done
}
for word; do
	case $word in *\?*) ;; *) continue ;; esac
	if matches "${word#*\?}"; then
		kind=${word%%\?*}
		break
	fi
done
exec sh "$dir/bin/event" "$kind" "$fields"
