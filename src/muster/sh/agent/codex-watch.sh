#!/bin/sh
# watch start|turn|dialog …: what Codex does and no hook of it tells. It ends by itself, and with the client.
#   start HOW          until the input box is open; that is `ready`, unless a first message is under way
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
	# Others may wait for this one to be up, see codex-run.
	up() { [ -z "$mark" ] || { mv -f "$mark.lock/version" "$mark" && rm -rf "$mark.lock" && mark=; }; }
	mark=$(cat "$dir/client/migrates" 2>/dev/null) && rm -f "$dir/client/migrates"
	trap '[ -z "$mark" ] || rm -rf "$mark.lock"' EXIT
	calm=0 seen=0
	while alive && [ "$calm" -lt 3 ]; do
		pause 0.2
		shown=$(title)
		case $shown in Ready | *Working* | *'Action Required'*) up ;; esac
		case $shown in
		Ready) calm=$((calm + 1)) ;;
		*Working* | *'Action Required'*) exit 0 ;;
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
	[ "$1" = told ] || ! alive || sh "$dir/bin/event" ready
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
