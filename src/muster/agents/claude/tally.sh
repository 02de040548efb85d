#!/bin/sh
# tally TRANSCRIPT: the tokens of a conversation of Claude Code, its subagents included, to usage.json. A message is written once
# for each of its parts, with the same numbers: it counts once.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
[ -f "$1" ] || exit 0
set -- "$1" "${1%.jsonl}"/subagents/*.jsonl
[ -f "$2" ] || set -- "$1"
LC_ALL=C awk '
function word(text, key) {
	if (!match(text, "\"" key "\":\"[^\"\\\\]*\"")) return ""
	return substr(text, RSTART + length(key) + 4, RLENGTH - length(key) - 5)
}
function number(text, key) {
	if (!match(text, "\"" key "\":[0-9]+")) return 0
	return substr(text, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
}
/"type":"assistant"/ && (at = index($0, "\"usage\":{")) {
	id = word($0, "id")
	usage = substr($0, at)
	if (id == "") next
	model[id] = word($0, "model")
	if (model[id] == "<synthetic>") { delete model[id]; next }
	count[id, 1] = number(usage, "input_tokens")
	count[id, 2] = number(usage, "output_tokens")
	count[id, 3] = number(usage, "cache_read_input_tokens")
	count[id, 4] = number(usage, "cache_creation_input_tokens")
	count[id, 5] = number(usage, "ephemeral_1h_input_tokens") # among those; they have a price of their own
}
function told(prefix) {
	return sprintf("\"input_tokens\":%d,\"output_tokens\":%d,\"cache_read_tokens\":%d,\"cache_write_tokens\":%d,\"cache_write_1h_tokens\":%d", \
		sum[prefix, 1], sum[prefix, 2], sum[prefix, 3], sum[prefix, 4], sum[prefix, 5])
}
END {
	for (id in model) {
		seen[model[id]] = 1
		for (i = 1; i <= 5; i++) {
			sum["", i] += count[id, i]
			sum[model[id], i] += count[id, i]
		}
	}
	printf "{%s,\"models\":{", told("")
	for (name in seen) printf "%s\"%s\":{%s}", more++ ? "," : "", name, told(name)
	print "}}"
}' "$@" >"$dir/.usage.$$" && mv -f "$dir/.usage.$$" "$dir/usage.json"
