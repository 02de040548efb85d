#!/bin/sh
# rule FILE: print the verdict of the rules in FILE on the tool call that a hook describes on stdin: allow, deny, ask, patch or nothing.
# FILE has one rule per line: allow or deny, a blank, the rule. A rule is Bash(WORDS), Bash(WORDS *), Edit or Write (a patch), or the
# name of a tool. A rule can allow one plain command only; it denies a line that has the command anywhere between shell operators.
# ask: no rule covers this command, and it may do more than read. patch: the same for a patch, also one that comes as a command.
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
function parsed(line, i, c, quote, text, inside, at) {
	# Split a line as a shell would: commands into cmd[1…count], the words of command k into word[k, 1…words[k]], with `globs[k]` if
	# one has a pattern. 0 for a line in which anything else is expanded, redirected or nested.
	count = 0
	if (length(line) > 100000) return 0
	at = 1
	words[1] = globs[1] = 0
	for (i = 1; i <= length(line) + 1; i++) {
		c = i > length(line) ? ";" : substr(line, i, 1)
		if (c == "\\") {
			# A JSON escape. Of those only these two stand for a character that the shell does not act on by itself.
			c = substr(line, ++i, 1)
			if (c != "\"" && c != "\\") return 0
			if (c == "\\" && quote != "\047") return 0
		}
		if (i > length(line) && quote != "") return 0
		if (quote != "" && c == quote) { quote = ""; continue }
		if (quote == "\047") { text = text c; continue }
		if (c == "$" || c == "`") return 0
		if (quote != "") { text = text c; continue }
		if (c == "\047" || c == "\"") { quote = c; inside = 1; continue }
		if (c ~ /[<>(){}]/ || c == "#" && !inside) return 0
		if (c !~ /[ ;|&]/) {
			if (c ~ /[*?[]/) globs[at] = 1
			text = text c
			inside = 1
			continue
		}
		if (inside) {
			word[at, ++words[at]] = text
			cmd[at] = words[at] == 1 ? text : cmd[at] " " text
		}
		text = ""
		inside = 0
		if (c == " ") continue
		if (c == "&" && substr(line, ++i, 1) != "&") return 0
		if (words[at]) { count = at++; words[at] = globs[at] = 0 }
	}
	return count
}
function option(k, pattern, i) {
	for (i = 2; i <= words[k]; i++) if (word[k, i] ~ pattern) return 1
	return 0
}
function reads(i, name) {
	# Every command of the line only reads. What is not sure to is not in the list; a pattern may become any option of a command
	# that has options which do more.
	for (i = 1; i <= count; i++) {
		name = word[i, 1]
		if (name ~ /^(ls|cat|head|tail|wc|pwd|cd|grep|nl|cut|tr|stat|du|basename|dirname|realpath|readlink|echo|true|which)$/) continue
		if (globs[i]) return 0
		if (name ~ /^(printf|file)$/ && !option(i, "^-")) continue
		if (name == "sed" && word[i, 2] == "-n" && word[i, 3] ~ /^[0-9]+(,([0-9]+|[$]))?p$/) {
			word[i, 2] = ""
			if (!option(i, "^-")) continue
		}
		if (name == "rg" && !option(i, "^--(pre|hostname-bin)")) continue
		if (name == "find" && !option(i, "^-(exec|ok|delete|fprint|fls)")) continue
		# Git takes the beginning of an option for the whole.
		if (name == "git" && word[i, 2] ~ /^(status|diff|log|show)$/ && !option(i, "^--(ou|ext|textc)")) continue
		return 0
	}
	return 1
}
BEGIN {
	tool = ENVIRON["TOOL"]
	line = ENVIRON["LINE"]
	many = line
	gsub(/\\[nrt]/, ";", many)
	parts = split(many, part, /[;&|(){}`]/)
	simple = tool == "Bash" && parsed(line)
	plain = line !~ /[;&|<>(){}$`\\]/
}
{
	if ($0 == "allow Edit" || $0 == "allow Write") edits = 1
	verdict = $1
	rule = substr($0, length($1) + 2)
	if (verdict == "allow" && (plain || named(rule)) && fits(rule, line)) allowed = 1
	if (verdict != "deny") next
	if (fits(rule, line)) denied = 1
	for (i = 1; i <= parts; i++) {
		gsub(/^[ !]+|[ ]+$/, "", part[i])
		if (part[i] != "" && fits(rule, part[i])) denied = 1
	}
	# The same without its quotes and with one blank between words.
	for (i = 1; simple && i <= count; i++) if (fits(rule, cmd[i])) denied = 1
}
END {
	if (denied) print "deny"
	else if (allowed) print "allow"
	else if (tool == "apply_patch" || tool == "Bash" && line ~ /apply_patch/) print edits && heredoc(line) ? "allow" : "patch"
	else if (tool == "Bash" && !(simple && reads())) print "ask"
}' "$1"
