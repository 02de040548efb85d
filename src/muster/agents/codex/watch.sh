#!/bin/sh
# watch start|turn|dialog …: what Codex does and no hook of it tells. It ends by itself, and with the client.
#   start HOW          until the input box is open; that is `ready`, unless a first message is under way. Then, until a hook of this
#                      launch has told of a message, what its title says, where it works and no hook says so: as its status file
#   turn WHERE TURN    until the turn is over: `error` or `limit` where its rollout says so, `queued` for what it keeps for later
#   dialog FILE KIND FIELD…   KIND once the dialog is open of which its hook said what is in FILE, `answered` when it is gone
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
what=$1
shift
pane() {
	verb=$1
	shift
	tmux -S "$(cat "$dir/socket")" "$verb" -t "=${dir##*/}:" "$@" 2>/dev/null
}
# Its own word for what it does: it was told to show it as the title of its terminal.
title() { pane display-message -p '#{pane_title}'; }
alive() { kill -0 "$(cat "$dir/client/pid")" 2>/dev/null; }
# Often at first: what takes long may be a person, or a long command.
pause() { looked=$((${looked:-0} + 1)) && if [ "$looked" -lt 50 ]; then sleep "$1"; else sleep 1; fi; }
size() { wc -c 2>/dev/null <"$1" || echo 0; }

case $what in
start)
	# Others may wait for this one to be up, see run.sh.
	up() { [ -z "$mark" ] || { mv -f "$mark.lock/version" "$mark" && rm -rf "$mark.lock" && mark=; }; }
	mark=$(cat "$dir/client/migrates" 2>/dev/null) && rm -f "$dir/client/migrates"
	trap '[ -z "$mark" ] || rm -rf "$mark.lock"' EXIT
	calm=0 seen=0
	while alive && [ "$calm" -lt 3 ]; do
		pause 0.2
		shown=$(title)
		case $shown in Ready | *Working* | *'Action Required'*) up ;; esac
		case $shown in
		# The cursor is hidden in a menu, and before the box is drawn.
		Ready) if [ "$(pane display-message -p '#{cursor_flag}')" = 1 ]; then calm=$((calm + 1)); else calm=0; fi ;;
		*Working* | *'Action Required'*) break ;;
		*) calm=0 ;;
		esac
		# Hooks that the user has not reviewed are not for us to trust: they do not run.
		# At its start the client throws away what was typed before: where the dialog stays, the key is pressed again after a while.
		case $(pane capture-pane -p) in
		*'Hooks need review'*'esc skip'*)
			up
			[ $((seen % 20)) != 0 ] || pane send-keys Escape
			seen=$((seen + 1))
			;;
		esac
		[ "$1" != told ] || [ -f "$dir/ev/prompt" ] || calm=0
	done
	[ "$1" = told ] || [ "$calm" -lt 3 ] || sh "$dir/bin/event" ready '"by":"title"'

	# The user may have turned hooks off, and a version may refuse them.
	# shellcheck disable=SC3013  # dash, bash and busybox have -nt
	heard() { [ "$dir/ev/prompt" -nt "$dir/ev/started" ]; }
	status=$dir/client/status/title.json told='' at_work=0 looked=0
	rm -f "$status"
	: >"$dir/client/looked"
	while alive && ! heard; do
		pause 0.4
		# One that waits for its first message prints nothing.
		# shellcheck disable=SC3013
		[ "$dir/rec/tail" -nt "$dir/client/looked" ] || continue
		: >"$dir/client/looked"
		case $(title) in
		*'Action Required'*) now=waiting ;;
		*Working*) now=busy ;;
		*) now=idle ;;
		esac
		# Until it has worked for some seconds, its hooks may still tell.
		if [ "$now" != idle ]; then at_work=$((at_work + 1)); fi
		if [ "$now" = "$told" ] || [ "$at_work" -lt 5 ]; then continue; fi
		if [ -z "$told" ]; then
			# Without a hook nobody says where its rollout is: it names the work dir, which no other agent has.
			find "${CODEX_HOME:-$HOME/.codex}/sessions" -name 'rollout-*.jsonl' -newer "$dir/ev/started" 2>/dev/null | while IFS= read -r where; do
				head -c 4000 "$where" | grep -qF "\"cwd\":\"$PWD\"" || continue
				case $where in *[\\\"]*) ;; *) sh "$dir/bin/event" session "\"where\":\"$where\"" ;; esac
			done
		fi
		told=$now
		mkdir -p "${status%/*}"
		printf '{"status":"%s","t":%s}\n' "$told" "$(date +%s)" >"$status.new" && mv -f "$status.new" "$status"
	done
	! heard || rm -f "$status"
	;;
turn)
	where=$1 turn=$2 grown=
	id=${where%.jsonl}
	id=${id#"${id%????????-????-????-????-????????????}"}
	log=${where%/sessions/*}/history.jsonl
	heard=$(size "$log")
	ends='^[{]"timestamp":"[^"]*",("ordinal":[0-9]+,)?"type":"event_msg","payload":[{]"type":"(task_complete|turn_aborted)"'
	while alive && [ "$turn" = "$(cat "$dir/client/turn")" ]; do
		said=$(size "$log") now=$(size "$where")
		if [ "$now" != "$grown" ]; then
			grown=$now
			end=$(tail -c 200000 "$where" | LC_ALL=C grep -E "$ends" | grep -F "\"turn_id\":\"$turn\"" | tail -n 1)
			case $end in
			*',"error":{'*'"codex_error_info":"usage_limit_exceeded"'*) kind=limit ;;
			*',"error":{'*) kind=error ;;
			?*) exit 0 ;;
			*) kind= ;;
			esac
			if [ -n "$kind" ]; then
				printf %s "$end" | sh "$dir/bin/hook" "$kind" text=~message
				exec sh "$dir/bin/tally"
			fi
		fi
		# Only now: what was said behind the end of the turn is the next one.
		if [ "$said" -gt "$heard" ]; then
			tail -c "+$((heard + 1))" "$log" | head -c "$((said - heard))" | while IFS= read -r line; do
				text=${line#*\"text\":}
				case $line in "{\"session_id\":\"$id\","*'"}') sh "$dir/bin/event" queued "\"text\":${text%\}}" ;; esac
			done
			heard=$said
		fi
		sleep 0.4
	done
	;;
dialog)
	file=$1
	shift
	since() { [ -n "$(find "$dir/ev" -type f -newer "$1")" ]; }
	while shown=$(title) && [ -n "$shown" ]; do
		case $shown in *'Action Required'*) break ;; esac
		# Nobody was asked: another hook, or the client itself, had the answer.
		if ! alive || since "$file"; then exec rm -f "$file"; fi
		pause 0.1
	done
	sh "$dir/bin/hook" "$@" <"$file"
	rm -f "$file"
	while alive; do
		case $(title) in *'Action Required'*) ;; *) break ;; esac
		sleep 0.2
	done
	sleep 0.2
	! alive || since "$dir/ev/$1" || sh "$dir/bin/event" answered
	;;
esac
