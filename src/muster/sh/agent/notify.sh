#!/bin/sh
# notify KIND: this event was just written. If it takes the agent into another state, bin/notify.py (notifier.py) looks
# whether the user's [notify] command is to be run. Most events change nothing, and no Python starts for them.
# notify died STATUS SIGNAL: tmux saw the agent's process end; the wrapper has reported it already, unless it was killed too.
exec </dev/null >/dev/null 2>&1
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
cd "$dir/notify" || exit 0
state='' reason=''
case $1 in # as in evidence.py
started)
	rm -f is.*
	: >is.starting
	exit 0
	;;
ready | turn-end) state=ready ;;
interrupted) state=ready reason=interrupted ;;
error) state=ready reason='failed turn' ;;
prompt | tool | answered | retry) state=working ;;
ask) state=waiting reason=question ;;
permission | limit) state=waiting reason=$1 ;;
stopped) state=stopped ;;
exit | died) ;;
*) exit 0 ;;
esac
[ -z "$state" ] || [ ! -e "is.$state" ] || exit 0
program=
[ ! -f python ] || IFS= read -r program <./python
[ -x "$program" ] || program=python3
kind=$1
shift
exec "$program" -I -S "$dir/bin/notify.py" "$dir" "$kind" "$state" "$reason" "$@"
