#!/bin/sh
# tally: the tokens of all threads of this Codex, its subagents included, to usage.json. Each answer of a model is written down once,
# with its own numbers; a thread that began as a copy of another has its lines too. What was cached is part of the input there.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
set --
while IFS= read -r file; do
	case $file in /*) [ ! -f "$file" ] || set -- "$@" "$file" ;; esac
done <"$dir/client/threads"
[ $# -gt 0 ] || exit 0
LC_ALL=C awk '
function word(text, key) {
	if (!match(text, "\"" key "\":\"[^\"\\\\]*\"")) return ""
	return substr(text, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function number(text, key) {
	if (!match(text, "\"" key "\":[0-9]+")) return 0
	return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
FNR == 1 { current = "" }
/^[{]"timestamp":"[^"]*",("ordinal":[0-9]+,)?"type":"turn_context",/ { current = word($0, "model") }
/^[{]"timestamp":"[^"]*",("ordinal":[0-9]+,)?"type":"token_usage_record",/ {
	id = word($0, "response_id")
	at = index($0, "\"usage\":{")
	if (!at || id == "" || id in seen) next
	seen[id] = 1
	usage = substr($0, at)
	name = current == "" ? "unknown" : current
	models[name] = 1
	read = number(usage, "cached_input_tokens")
	written = number(usage, "cache_write_input_tokens")
	count[1] = number(usage, "input_tokens") - read - written
	count[2] = number(usage, "output_tokens")
	count[3] = read
	count[4] = written
	for (i = 1; i <= 4; i++) {
		sum["", i] += count[i]
		sum[name, i] += count[i]
	}
}
function told(prefix) {
	return sprintf("\"input_tokens\":%d,\"output_tokens\":%d,\"cache_read_tokens\":%d,\"cache_write_tokens\":%d", \
		sum[prefix, 1], sum[prefix, 2], sum[prefix, 3], sum[prefix, 4])
}
END {
	printf "{%s,\"models\":{", told("")
	for (name in models) printf "%s\"%s\":{%s}", more++ ? "," : "", name, told(name)
	print "}}"
}' "$@" >"$dir/.usage.$$" && mv -f "$dir/.usage.$$" "$dir/usage.json"
