#!/bin/sh
# notify KIND: this event was just written. Where it takes the agent into a state that [notify] asks for, the user's command is
# started: once, in the background, away from the agent's terminal. Whatever goes wrong here is no trouble of the agent's.
#   notify/command, on   what to run, and in which states; written by create and start, for agents on the user's machine only
#   notify/env           the environment that create or start was called in; taken away when the agent ends
#   notify/is.STATE      the state it is in. A rename takes it to the next, and of two that try one wins
#   notify/log           what the command printed
# notify died STATUS SIGNAL: tmux saw the agent's process end; the wrapper told how, unless it was killed too.
# notify -run LOG SECONDS COMMAND: only start it, with the environment as it is.
# Names begin with mu_: a variable that the user's environment also has would reach the command changed.
[ "$1" = -fire ] || exec </dev/null >/dev/null 2>&1

# After SECONDS everything that COMMAND started is ended. Of what it prints 64 kB are kept, and the 64 kB before.
run() { # LOG SECONDS COMMAND
	trap '' HUP INT QUIT
	cd "${HOME:-/}" || cd /
	if [ -e "$1" ] || [ -h "$1" ]; then
		if [ ! -f "$1" ] || [ -h "$1" ]; then rm -rf "$1"; fi
	fi
	[ -z "$(find "$1" -size +100)" ] || mv -f "$1" "$1.1"
	mu_mark=notify-$$-$(date +%s)
	(
		trap 'kill "$!"; exit' TERM
		sleep "$2" &
		wait "$!"
		printf 'it took longer than %s s and is ended\n' "$2" >>"$1"
		sh "${0%notify*}reap${0##*notify}" "$mu_mark" 20
	) &
	mu_watchdog=$!
	{
		printf '%s %s: %s%s\n' "$(date '+%Y-%m-%d %H:%M:%S')" "$MUSTER_NOTIFY_ADDRESS" "$MUSTER_NOTIFY_STATE" \
			"${MUSTER_NOTIFY_REASON:+ ($MUSTER_NOTIFY_REASON)}"
		mu_code=0
		MUSTER_AGENT_ID=$mu_mark sh -c "$3" || mu_code=$?
		[ "$mu_code" = 0 ] || printf 'exit %s\n' "$mu_code"
	} 2>&1 | {
		head -c 65536
		cat >/dev/null
	} >>"$1"
	kill "$mu_watchdog"
}

# Only of a plain file: what the agent put in its place could be a pipe that nobody writes to.
start_of() { # FILE
	[ ! -f "$1" ] || head -c 20000 "$1"
}

# The first line of what an event (a JSON object on stdin) says: at most 200 characters, none of them a control character.
# It comes as octal escapes for printf %b. Numbers of bytes are something that every awk and locale agrees on.
words() {
	od -An -v -tu1 | awk '
	function put(code) {
		if (code == 9) code = 32
		if (code < 32 || (code >= 127 && code < 160) || code == 1564 || (code >= 8203 && code <= 8207) || code > 1114111 || \
			(code >= 8232 && code <= 8238) || (code >= 8288 && code <= 8303) || (code >= 55296 && code <= 57343) || code == 65279) return
		if (code == 32 && !inside || ++count > 200) return
		inside = 1
		if (code < 128) byte(code)
		else if (code < 2048) { byte(192 + int(code / 64)); byte(128 + code % 64) }
		else if (code < 65536) { byte(224 + int(code / 4096)); byte(128 + int(code / 64) % 64); byte(128 + code % 64) }
		else { byte(240 + int(code / 262144)); byte(128 + int(code / 4096) % 64); byte(128 + int(code / 64) % 64); byte(128 + code % 64) }
	}
	function byte(number) { printf "\\0%03o", number }
	function hex(at, sum, i, digit) {
		for (i = at; i < at + 4; i++) {
			digit = b[i] >= 97 ? b[i] - 87 : b[i] >= 65 ? b[i] - 55 : b[i] - 48
			sum = sum * 16 + digit
		}
		return sum
	}
	function say(i, end, code, low, more) {
		inside = 0
		for (; i <= end; i++) {
			code = b[i]
			if (code == 92) {
				code = b[++i]
				if (code == 110) { if (inside) return; continue }
				if (code == 116) code = 9
				else if (code == 98 || code == 102 || code == 114) continue
				else if (code == 117) {
					code = hex(i + 1)
					i += 4
					if (code >= 55296 && code < 56320 && b[i + 1] == 92 && b[i + 2] == 117) {
						low = hex(i + 3)
						if (low >= 56320 && low < 57344) { code = 65536 + (code - 55296) * 1024 + low - 56320; i += 6 }
					}
					if (code == 10) { if (inside) return; continue }
				}
			} else if (code >= 128) {
				more = code >= 240 ? 3 : code >= 224 ? 2 : 1
				code = code < 192 ? 0 : code >= 240 ? code - 240 : code >= 224 ? code - 224 : code - 192
				for (; more && b[i + 1] >= 128 && b[i + 1] < 192; more--) code = code * 64 + b[++i] - 128
				if (more || code < 128) continue
			}
			put(code)
		}
	}
	{ for (i = 1; i <= NF; i++) b[++n] = $i + 0 }
	END {
		for (i = 1; i <= n; i++) {
			if (b[i] == 34) {
				from = i + 1
				for (i++; i <= n && b[i] != 34; i++) if (b[i] == 92) i++
				if (value && depth == 1) { first[key] = from; last[key] = i - 1 }
				else if (!value) for (key = ""; from < i; from++) key = key sprintf("%c", b[from])
				value = 0
			} else if (b[i] == 58) value = 1
			else if (b[i] == 123 || b[i] == 91) { depth++; value = 0 }
			else if (b[i] == 125 || b[i] == 93) depth--
			else if (b[i] == 44) value = 0
		}
		split("name tool text detail", order, " ")
		for (i = 1; i <= 4; i++) if (order[i] in first && first[order[i]] <= last[order[i]]) {
			if (count) { put(58); put(32) }
			say(first[order[i]], last[order[i]])
		}
	}'
}

# What an agent that has ended last said: its client's last words, else the last line on its terminal.
last_words() { # FOLDER
	# shellcheck disable=SC2012  # these names are known
	mu_file=$(cd "$1/ev" && ls -t turn-end ask permission tool error | head -n 1)
	if [ -n "$mu_file" ]; then
		start_of "$1/ev/$mu_file" | words
	elif [ -f "$1/rec/tail" ]; then
		mu_esc=$(printf '\033') mu_bell=$(printf '\007')
		{
			printf '{"text":"'
			tail -c 4000 "$1/rec/tail" | tr '\r' '\n' |
				LC_ALL=C sed "s/$mu_esc\\[[0-9;?>=]*[A-Za-z]//g; s/$mu_esc][^$mu_esc$mu_bell]*//g; s/${mu_esc}[()].//g; /^Script [sd]/d" |
				LC_ALL=C sed -n '/[^ ]/h; ${ x; s/[\\"]/\\&/g; p; }'
			printf '"}'
		} | words
	fi
}

case $1 in
-run)
	shift
	run "$@" &
	exit 0
	;;
-fire) # FOLDER KIND STATE REASON, the event on stdin and the environment as file 3
	shift
	if [ -e /dev/fd/3 ]; then
		# shellcheck disable=SC1091
		. /dev/fd/3
		exec 3<&-
	fi
	unset MUSTER_AGENT_ID MUSTER_AGENT_DIR MUSTER_RESULT MUSTER_PROMPT
	MUSTER_NOTIFY_STATE=$3 MUSTER_NOTIFY_REASON=$4
	# Its name as it is now; of the characters of a name none needs care.
	MUSTER_AGENT=$(start_of "$1/agent.json" | sed -n '1s/^{"id": "[^"]*", "name": "\([A-Za-z0-9_-]*\)".*/\1/p')
	: "${MUSTER_AGENT:=${1##*/}}"
	MUSTER_NOTIFY_ADDRESS=$MUSTER_AGENT
	MUSTER_NOTIFY_WORKDIR=$(start_of "$1/cwd")
	case $2 in
	exit | died) MUSTER_NOTIFY_TEXT=$(last_words "$1") ;;
	*) MUSTER_NOTIFY_TEXT=$(head -c 20000 | words) ;;
	esac
	MUSTER_NOTIFY_TEXT=$(printf %b "$MUSTER_NOTIFY_TEXT")
	export MUSTER_AGENT MUSTER_NOTIFY_STATE MUSTER_NOTIFY_REASON MUSTER_NOTIFY_ADDRESS MUSTER_NOTIFY_WORKDIR MUSTER_NOTIFY_TEXT
	exec </dev/null
	run "$1/notify/log" 30 "$(start_of "$1/notify/command")"
	exit 0
	;;
esac

mu_dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
cd "$mu_dir/notify" || exit 0
ended() { # CODE
	if [ "$1" = 0 ]; then
		mu_now='done' mu_reason=
	elif [ "$1" -lt 128 ]; then
		mu_now=failed mu_reason="exit $1"
	else
		mu_now=failed mu_reason="signal $(($1 - 128))"
	fi
}
mu_reason=
case $1 in # as in evidence.py
started)
	mu_now=starting
	rm -f is.*
	;;
ready | turn-end) mu_now=ready ;;
interrupted) mu_now=ready mu_reason=interrupted ;;
error) mu_now=ready mu_reason='failed turn' ;;
prompt | tool | answered | retry) mu_now=working ;;
ask) mu_now=waiting mu_reason=question ;;
permission | limit) mu_now=waiting mu_reason=$1 ;;
stopped) mu_now=stopped ;;
exit)
	mu_line=$(start_of "$mu_dir/ev/exit")
	mu_code=${mu_line#*'"code":'}
	mu_code=${mu_code%%[!0-9]*}
	ended "${mu_code:-1}"
	case $mu_line in
	*'"why":"timeout"'*) mu_now=failed mu_reason=timeout ;;
	*'"why":"hangup"'*) mu_now=lost mu_reason='its session is gone' ;;
	esac
	;;
died)
	case $2$3 in *[!0-9]*) exit 0 ;; esac
	if [ "${3:-0}" != 0 ]; then ended "$((128 + $3))"; else ended "${2:-1}"; fi
	;;
*) exit 0 ;;
esac

[ ! -e "is.$mu_now" ] || exit 0
mu_was='' mu_try=0
while [ -z "$mu_was" ] && [ "$mu_try" -lt 3 ]; do
	mu_try=$((mu_try + 1))
	for mu_old in starting working waiting ready 'done' failed stopped lost; do
		[ -e "is.$mu_old" ] || continue
		case $mu_old,$mu_now in
		*,starting) ;;
		done,* | failed,* | stopped,* | lost,*) exit 0 ;; # what is over is over, until it is started again
		esac
		if mv -f "is.$mu_old" "is.$mu_now"; then
			mu_was=$mu_old
			break
		fi
		[ ! -e "is.$mu_now" ] || exit 0
	done
done
[ -n "$mu_was" ] || : >"is.$mu_now"

mu_on=
[ ! -f on ] || IFS= read -r mu_on <on || :
mu_fire=
case " $mu_on " in *" $mu_now "*) mu_fire=1 ;; esac
# A turn that failed leaves the agent ready; whoever wants to hear of failures wants to hear of it.
case "$mu_reason, $mu_on " in 'failed turn,'*' failed '*) mu_fire=1 ;; esac
# That it is up and ready for a first message is no news.
[ "$mu_was,$mu_now,$mu_reason" != starting,ready, ] || mu_fire=
if [ -n "$mu_fire" ] && [ -n "$mu_was" ]; then
	set -- sh "$0" -fire "$mu_dir" "$1" "$mu_now" "$mu_reason"
	# Both files are opened here: the next event replaces the one, and the other goes with the agent.
	exec 4</dev/null
	[ ! -f "$mu_dir/ev/$5" ] || exec 4<"$mu_dir/ev/$5"
	if [ -f env ]; then
		exec 3<./env
		set -- env -i "$@"
	fi
	if command -v setsid; then set -- setsid "$@"; fi
	trap '' HUP
	"$@" <&4 4<&- &
fi
case $mu_now in done | failed | stopped | lost) rm -f env ;; esac
exit 0
