#!/bin/sh
# rule FILE: print the verdict of the rules in FILE on the tool call that a hook describes on stdin: allow, deny, ask, patch or nothing.
# FILE has one rule per line: allow or deny, a blank, the rule. A rule is Bash(WORDS), Bash(WORDS *), Edit or Write (a patch), or the
# name of a tool. A rule can allow one plain command only; it denies a line that has the command anywhere between shell operators.
# ask: no rule covers this command, and it does more than read. patch: the same for a patch, also one that comes as a command.
said=$(cat)
rest=${said#*\"tool_name\":\"}
TOOL=${rest%%\"*}
LINE=$(printf %s "$rest" | sed -nE 's/^[^"]*","tool_input":[{]"command":"(([^"\\]|\\.)*)".*/\1/p')
export TOOL LINE
LC_ALL=C awk '
function named(rule) {
	return rule == tool || tool == "apply_patch" && (rule == "Edit" || rule == "Write")
}
function fits(rule, line, words) {
	if (named(rule)) return 1
	if (tool != "Bash" || rule !~ /^Bash\(.*\)$/) return 0
	words = substr(rule, 6, length(rule) - 6)
	if (words !~ /(:| )\*$/) return line == words
	words = substr(words, 1, length(words) - 2)
	return line == words || index(line, words " ") == 1
}
function heredoc(line) {
	# The form in which a model without the tool sends a patch: one quoted here document and nothing behind it.
	if (line !~ /^apply_patch <<\047EOF\047\\n\*\*\* Begin Patch.*\*\*\* End Patch\\nEOF(\\n)?$/) return 0
	sub(/(\\n)?$/, "", line)
	return index(line, "\\nEOF") == length(line) - 4
}
function reads(line, i, n, part) {
	# Every command of the line only reads, whatever its arguments. What is not sure to is not in the list.
	gsub(/\\"/, "\"", line)
	if (line ~ /[<>(){}$`\\]/ || line ~ /(^|[^&])&([^&]|$)/) return 0
	n = split(line, part, /[;|&]+/)
	for (i = 1; i <= n; i++) {
		gsub(/^ +| +$/, "", part[i])
		if (part[i] == "") continue
		if (part[i] ~ /^(ls|cat|head|tail|wc|pwd|cd|grep|nl|cut|tr|stat|file|du|basename|dirname|realpath|readlink|echo|printf|true|which)( |$)/) continue
		if (part[i] ~ /^sed -n [\047"]?[0-9]+(,[0-9]+)?p[\047"]? / && part[i] !~ / -[^ ]*i/) continue
		if (part[i] ~ /^rg / && part[i] !~ /--(pre|hostname-bin)/) continue
		if (part[i] ~ /^find / && part[i] !~ / -(exec|ok|delete|fprint|fls)/) continue
		if (part[i] ~ /^git (status|diff|log|show)( |$)/ && part[i] !~ /--(output|ext-diff|textconv)/) continue
		return 0
	}
	return 1
}
BEGIN {
	tool = ENVIRON["TOOL"]
	line = ENVIRON["LINE"]
	many = line
	gsub(/\\[nrt]/, ";", many)
	count = split(many, part, /[;&|(){}`]/)
	plain = line !~ /[;&|<>(){}$`\\]/
}
{
	if ($0 == "allow Edit" || $0 == "allow Write") edits = 1
	verdict = $1
	rule = substr($0, length($1) + 2)
	if (verdict == "allow" && (plain || named(rule)) && fits(rule, line)) allowed = 1
	if (verdict != "deny") next
	if (fits(rule, line)) denied = 1
	for (i = 1; i <= count; i++) {
		gsub(/^[ !]+|[ ]+$/, "", part[i])
		if (part[i] != "" && fits(rule, part[i])) denied = 1
	}
}
END {
	if (denied) print "deny"
	else if (allowed) print "allow"
	else if (tool == "apply_patch" || tool == "Bash" && line ~ /apply_patch/) print edits && heredoc(line) ? "allow" : "patch"
	else if (tool == "Bash" && !reads(line)) print "ask"
}' "$1"
