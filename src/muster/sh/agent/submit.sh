#!/bin/sh
# submit: an agent calls this to report that its task has ended, and how. It checks the report, copies artifacts into the agent's
# folder and writes $MUSTER_RESULT atomically: one line of ASCII JSON, sealed with the agent's key. The report is only a claim, so
# it is checked again when the result is harvested (docs/result.md).
LC_ALL=C
export LC_ALL
unset CDPATH
umask 077
summary_most=65536 text_most=4096 escalate_most=20 artifact_most=100 file_most=1000 bytes_most=209715200 result_most=1048576
outcome='' summary='' reason='' escalations=0 artifacts=0 files=0 total=0 tmp='' part=''
newline='
'

usage() {
	cat <<'END'
submit: say how your task has ended. The last submit counts.

  submit --outcome ok|blocked|failed --summary TEXT [--reason TEXT] [--escalate TEXT]… [--artifact PATH]…

  --outcome WORD        ok: it is done; blocked: somebody else has to act first; failed: it cannot be done
  --summary TEXT        what you did and found, at most 64 KB
  --summary-file FILE   the same from a file, or from stdin with -
  --reason TEXT         why it is blocked or failed, at most 4 KB
  --escalate TEXT       something a person should know, whatever the outcome; up to 20 times, 4 KB each
  --artifact PATH       a file or folder of the work dir to keep; up to 100 times, 1000 files and 200 MB together

  submit --outcome ok --summary "Fixed the parser; all tests pass." --artifact report/log.txt
END
}

clean() { [ -z "$tmp" ] || rm -rf -- "$tmp" "$part"; }
trap clean EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

plain() { printf %s "$1" | tr -d '\000-\037\177' | head -c 400; }
# wrong WHAT [DO]: report a usage error; nothing is submitted.
wrong() {
	printf 'submit: %s\n' "$(plain "$1")" >&2
	printf '  %s\n' "$(plain "${2:-submit --help shows how it is written}")" >&2
	exit 2
}
fail() {
	printf 'submit: %s; nothing was submitted\n  %s\n' "$(plain "$1")" 'try again; df -h . shows whether the disk is full' >&2
	exit 1
}

# json < TEXT: a JSON string. With NAMES=1 the lines of TEXT are names: strings with commas between, and exit code
# 3 for a control character, 4 for bytes that are no UTF-8, 5 for a name that is too long. Else such bytes become U+FFFD.
# awk gets only numbers, because implementations differ in how they treat bytes.
json() {
	od -A n -v -t u1 | awk -v names="${1:-0}" '
function put(code) {
	if (names && code == 10) { printf "\""; open = size = part = 0; return }
	if (names && (code < 32 || code >= 127 && code < 160)) wrong(3)
	if (!open++) printf "%s\"", told++ ? "," : ""
	if (code == 34 || code == 92) printf "\\%c", code
	else if (code == 10) printf "\\n"
	else if (code == 9) printf "\\t"
	else if (code >= 32 && code < 127) printf "%c", code
	else if (code < 65536) printf "\\u%04x", code
	else printf "\\u%04x\\u%04x", 55296 + int((code - 65536) / 1024), 56320 + (code - 65536) % 1024
}
function bad() { if (names) wrong(4); need = 0; put(65533) }
function wrong(code) { left = code; exit code }
function byte(b) {
	size++
	part = b == 47 ? 0 : part + 1
	if (names && b != 10 && (part > 255 || size > 1024)) wrong(5)
	if (need) {
		if (b >= low && b <= high) {
			code = code * 64 + b - 128
			low = 128; high = 191
			if (!--need) put(code)
			return
		}
		bad()
	}
	low = b == 224 ? 160 : b == 240 ? 144 : 128
	high = b == 237 ? 159 : b == 244 ? 143 : 191
	if (b < 128) put(b)
	else if (b >= 194 && b < 224) { need = 1; code = b - 192 }
	else if (b >= 224 && b < 240) { need = 2; code = b - 224 }
	else if (b >= 240 && b < 245) { need = 3; code = b - 240 }
	else bad()
}
{ for (i = 1; i <= NF; i++) byte($i + 0) }
END {
	if (left) exit left
	if (need) bad()
	if (!names) printf "%s\"", open ? "" : "\""
}'
}

# said FILE MOST OPTION: what was said there, as JSON beside it.
said() {
	[ "$(($(wc -c <"$1")))" -le "$2" ] ||
		wrong "$3 is longer than $2 bytes" "shorten it; put the rest into a file of the work dir and add --artifact FILE"
	json <"$1" >"$1.json" || fail "cannot write to $tmp"
}
blank() { [ "$(($(tr -d ' \t\r\n\000' <"$1" | wc -c)))" = 0 ]; }
keep() { printf %s "$2" >"$tmp/$1" || fail "cannot write to $tmp"; }
# good_name NAME: return whether a name may appear in a result.
good_name() {
	case $1 in *"$newline"*) wrong "there is a new line in the name $1" "rename the file" ;; esac
	printf '%s\n' "$1" | json 1 >/dev/null
	case $? in
	0) return ;;
	3) wrong "there is a control character in the name $1" "rename the file" ;;
	4) wrong "the name $1 is not UTF-8" "rename the file" ;;
	5) wrong "the name $1 is too long: 255 bytes for each part and 1024 together" "rename the file, or move it up" ;;
	*) fail "od and awk do not work here" ;;
	esac
}

# real PATH: print the path with all symlinks resolved.
real() {
	at=$1 links=0
	until [ -d "$at" ]; do
		parent=$(cd -P -- "${at%/*}/" 2>/dev/null && pwd -P) || return 1
		at=$parent/${at##*/}
		[ -h "$at" ] || break
		links=$((links + 1))
		target=$(readlink "$at") && [ "$links" -le 40 ] || return 1
		case $target in /*) at=$target ;; *) at=$parent/$target ;; esac
	done
	if [ -d "$at" ]; then (cd -P -- "$at" && pwd -P); else printf '%s\n' "$at"; fi
}
inside() { case $1 in "$root"/*) ;; *) return 1 ;; esac }

copy() { # FROM NAME
	files=$((files + 1))
	[ "$files" -le "$file_most" ] || wrong "the artifacts are more than $file_most files" "name fewer of them, or pack them into one file"
	case $2 in */*) mkdir -p -- "$tmp/artifacts/${2%/*}" || fail "cannot write to $tmp" ;; esac
	if [ ! -f "$1" ] || [ -h "$1" ]; then wrong "$2 is no longer a plain file" "submit again when nothing changes it any more"; fi
	# Limit the copy, because a file may be endless or grow while it is read.
	head -c "$((bytes_most + 1 - total))" <"$1" >"$tmp/artifacts/$2" 2>/dev/null || fail "cannot copy $2"
	total=$((total + $(wc -c <"$tmp/artifacts/$2")))
	[ "$total" -le "$bytes_most" ] || wrong "the artifacts are larger than 200 MB together (with $2)" "name fewer or smaller files"
}

copy_folder() { # FROM NAME
	cd -P -- "$1" || wrong "$2 cannot be read"
	find . -type f | head -n "$((file_most + 1))" >"$tmp/list"
	odd=$(find . -name '*[[:cntrl:]]*' | head -n 1)
	[ -z "$odd" ] || wrong "there is a control character in the name of something in the folder $2" "rename it, or name the files one by one"
	odd=$(find . ! -type f ! -type d | head -n 1)
	[ -z "$odd" ] || wrong "$2/${odd#./} is a symlink or another thing that is no plain file" "name the files of $2 one by one, without it"
	[ -s "$tmp/list" ] || wrong "there is no file in the folder $2" "leave out --artifact $2"
	[ "$(($(wc -l <"$tmp/list")))" -le "$file_most" ] || wrong "there are more than $file_most files in $2" "pack them into one file"
	sed "s/^\.//" "$tmp/list" >"$tmp/below"
	awk -v folder="$(printf %s "$2" | sed 's/\\/\\\\/g')" '{ print folder $0 }' "$tmp/below" | json 1 >/dev/null ||
		wrong "something in the folder $2 has a name that is not UTF-8 or too long" "rename it, or name the files one by one"
	while IFS= read -r below; do copy "$1$below" "$2$below"; done <"$tmp/below"
	cd -P -- "$here" || fail "$here is gone"
}

artifact() {
	case $1 in
	'') wrong "--artifact names nothing" "--artifact PATH, a file or folder of $root" ;;
	.. | ../* | */.. | */../*) wrong "--artifact $1: a path with .. is not taken" "name it from the work dir: $root" ;;
	/*) given=$1 ;;
	*) given=./$1 ;;
	esac
	good_name "$1"
	if [ ! -e "$given" ]; then
		[ ! -h "$given" ] || wrong "--artifact $1: the symlink leads nowhere" "name the file itself"
		wrong "--artifact $1: there is no such file" "paths count from the folder you are in: $here"
	fi
	from=$(real "$given") || wrong "--artifact $1 cannot be found" "name the file itself, without symlinks"
	if [ -d "$from" ]; then
		name=$from
		[ "$from" != "${root:-/}" ] || wrong "--artifact $1 is the whole work dir" "name the files or folders in it that are worth keeping"
	else
		name=$(cd -P -- "${given%/*}/" && pwd -P)/${given##*/}
	fi
	if ! inside "$from" || ! inside "$name"; then
		wrong "--artifact $1 is outside of the work dir${given:+ ($from)}" "copy it into $root and name it there"
	fi
	name=${name#"$root"/}
	good_name "$name"
	[ -r "$from" ] || wrong "--artifact $1 cannot be read" "chmod u+r it"
	! grep -qxF -e "$name" "$tmp/names" || return 0
	if [ -d "$from" ]; then
		copy_folder "$from" "$name"
	elif [ -f "$from" ]; then
		copy "$from" "$name"
	else
		wrong "--artifact $1 is a device, a pipe or a socket" "name plain files and folders"
	fi
	printf '%s\n' "$name" >>"$tmp/names" || fail "cannot write to $tmp"
}

# Options are read twice: first to check everything, then to copy the artifacts.
options() { # ROUND WORD…
	round=$1
	shift
	while [ $# -gt 0 ]; do
		case $1 in
		--outcome | --summary | --summary-file | --reason | --escalate | --artifact)
			[ $# -gt 1 ] || wrong "nothing stands after $1"
			option=$1 value=$2
			shift 2
			;;
		--outcome=* | --summary=* | --summary-file=* | --reason=* | --escalate=* | --artifact=*)
			option=${1%%=*} value=${1#*=}
			shift
			;;
		-h | --help) usage && exit 0 ;;
		-*) wrong "there is no option $1" ;;
		*) wrong "the word $1 belongs to no option" "put quotes around a text: --summary \"what you did\"" ;;
		esac
		case $round,$option in
		artifacts,--artifact) artifact "$value" ;;
		artifacts,*) ;;
		*,--artifact) artifacts=$((artifacts + 1)) ;;
		*,--outcome) outcome=$value ;;
		*,--reason) keep reason "$value" ;;
		*,--escalate)
			escalations=$((escalations + 1))
			[ "$escalations" -le "$escalate_most" ] || wrong "more than $escalate_most times --escalate" "say several things in one"
			keep "escalate.$escalations" "$value"
			! blank "$tmp/escalate.$escalations" || wrong "--escalate says nothing" "say what a person should know, or leave it out"
			said "$tmp/escalate.$escalations" "$text_most" --escalate
			;;
		*)
			[ -z "$summary" ] || wrong "the summary is given twice" "use --summary or --summary-file, once"
			summary=$option
			if [ "$option" = --summary ]; then
				keep summary "$value"
			elif [ "$value" = - ]; then
				head -c "$((summary_most + 1))" >"$tmp/summary" || fail "cannot write to $tmp"
			elif [ -d "$value" ] || [ ! -r "$value" ]; then
				wrong "--summary-file $value: there is no such file, or it cannot be read" "write the summary there first, or use --summary TEXT"
			else
				head -c "$((summary_most + 1))" <"$value" >"$tmp/summary" || fail "cannot write to $tmp"
			fi
			;;
		esac
	done
}

case ${1:-} in -h | --help) usage && exit 0 ;; esac
[ $# -gt 0 ] || wrong "nothing is said" "submit --outcome ok --summary \"what you did\"; submit --help shows all"
[ -n "${MUSTER_RESULT:-}" ] || wrong "there is nowhere to submit to: \$MUSTER_RESULT is not set" "it is set for an agent of muster, in the terminal it was started in"
dir=${MUSTER_AGENT_DIR:-$(dirname -- "$MUSTER_RESULT")}
here=$(pwd -P) || wrong "the folder you are in is gone" "cd to your work dir"
case $dir in /*) ;; *) dir=$here/$dir ;; esac
case $MUSTER_RESULT in /*) ;; *) MUSTER_RESULT=$here/$MUSTER_RESULT ;; esac
root=$(cat "$dir/workdir" 2>/dev/null || cat "$dir/cwd" 2>/dev/null) || root=$here
root=$(cd -P -- "$root" 2>/dev/null && pwd -P) || wrong "the work dir is gone: $root"
[ "$root" != / ] || root=''
part=$MUSTER_RESULT.part.$$
tmp=$dir/submit.$$
{ rm -rf -- "$tmp" && mkdir -- "$tmp" "$tmp/artifacts"; } 2>/dev/null || fail "cannot write to $dir"
: >"$tmp/names"
: >"$tmp/reason"

options words "$@"
case $outcome in
ok | blocked | failed) ;;
'') wrong "the outcome is missing" "add --outcome ok, --outcome blocked or --outcome failed" ;;
[Oo][Kk] | [Dd]one | [Ss]ucc* | [Pp]ass* | [Ff]ixed | [Cc]ompl*) wrong "$outcome is no outcome" "did you mean --outcome ok? (the others: blocked, failed)" ;;
[Ff]ail* | [Ee]rror) wrong "$outcome is no outcome" "did you mean --outcome failed? (the others: ok, blocked)" ;;
[Bb]lock* | [Ss]tuck | [Ww]ait*) wrong "$outcome is no outcome" "did you mean --outcome blocked? (the others: ok, failed)" ;;
*) wrong "$outcome is no outcome" "it is one of ok, blocked, failed" ;;
esac
[ -n "$summary" ] || wrong "the summary is missing" "add --summary \"what you did and found\", or --summary-file FILE"
said "$tmp/summary" "$summary_most" "the summary"
! blank "$tmp/summary" || wrong "the summary is empty" "say in it what you did and found"
said "$tmp/reason" "$text_most" --reason
[ "$artifacts" -le "$artifact_most" ] || wrong "more than $artifact_most times --artifact" "name a folder that has them all"
options artifacts "$@"

(
	printf '{"version":1,"outcome":"%s","summary":' "$outcome" && cat "$tmp/summary.json" &&
		printf ',"reason":' && cat "$tmp/reason.json" && printf ',"escalate":[' || exit 1
	number=0
	while [ "$number" -lt "$escalations" ]; do
		[ "$number" = 0 ] || printf , || exit 1
		number=$((number + 1))
		cat "$tmp/escalate.$number.json" || exit 1
	done
	printf '],"artifacts":[' && json 1 <"$tmp/names" && printf '],"t":%s' "$(date +%s)" || exit 1
) >"$part" || fail "cannot write to $dir"
seal=''
if [ -n "${MUSTER_RESULT_KEY:-}" ]; then
	# The seal shows that this agent wrote the result. git runs in /, so that no repository selects another hash.
	seal=$({ printf '%s\n' "$MUSTER_RESULT_KEY" && cat "$part"; } | (unset GIT_DIR && cd / && git hash-object --stdin)) || fail "git does not work here"
fi
printf '%s}\n' "${seal:+,\"seal\":\"$seal\"}" >>"$part" || fail "cannot write to $dir"
[ "$(($(wc -c <"$part")))" -le "$result_most" ] || wrong "the result is larger than 1 MB" "shorten the summary, or put it into a file and add --artifact FILE"
# Something else may stand in the way of both; what mv would put into a folder goes nowhere.
rm -rf -- "$dir/artifacts" || fail "cannot replace $dir/artifacts"
[ "$files" = 0 ] || mv -- "$tmp/artifacts" "$dir/artifacts" || fail "cannot write to $dir"
[ ! -d "$MUSTER_RESULT" ] || rm -rf -- "$MUSTER_RESULT"
mv -f -- "$part" "$MUSTER_RESULT" || fail "cannot write to $MUSTER_RESULT"
printf 'submitted: %s' "$outcome"
[ "$files" = 0 ] || printf ', files kept: %s' "$files"
printf '. Submitting again replaces this.\n'
