#!/bin/sh
# rule FILE: what the rules in FILE (a line each: allow or deny, a blank, the rule) say to the tool call that a hook tells of on stdin:
# allow, deny or nothing. A rule is Bash(WORDS), Bash(WORDS *), Edit or Write (a patch), or the name of a tool.
# Only one plain command can be allowed; denied is a line that has the command anywhere between the shell's own signs.
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
BEGIN {
	tool = ENVIRON["TOOL"]
	line = ENVIRON["LINE"]
	many = line
	gsub(/\\[nrt]/, ";", many)
	count = split(many, part, /[;&|(){}`]/)
	plain = line !~ /[;&|<>(){}$`\\]/
}
{
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
END { if (denied) print "deny"; else if (allowed) print "allow" }' "$1"
