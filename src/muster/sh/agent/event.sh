#!/bin/sh
# event KIND [FIELDS]: add one line to the agent's log, and keep the newest of each kind in ev/.
# FIELDS is the inside of a JSON object. The log starts over (one old part is kept) at 8 MB. Then notify has a look at it.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
t=$(date +%s.%N)
case $t in *N) t=${t%.*} ;; esac
# While this file is there, the client may be about to open a dialog (see tmux.sh).
flight=
case $1 in
tool | permission | ask)
	flight=$dir/.hooks/$$
	trap 'rm -f "$flight"' EXIT
	mkdir -p "$dir/.hooks" && : >"$flight"
	;;
esac
line="{\"t\":$t,\"kind\":\"$1\"${2:+,$2}}"
if [ -n "$(find "$dir/events.jsonl" -size +16384 2>/dev/null)" ]; then
	mv -f "$dir/events.jsonl" "$dir/events.1.jsonl"
fi
# Write only to a plain file: the agent may have replaced it by a pipe without a reader.
for file in "$dir/events.jsonl" "$dir/ev/$1"; do
	if [ -e "$file" ] || [ -h "$file" ]; then
		if [ ! -f "$file" ] || [ -h "$file" ]; then rm -rf "$file"; fi
	fi
done
printf '%s\n' "$line" >>"$dir/events.jsonl"
printf '%s\n' "$line" >"$dir/ev/.$1.$$" && mv -f "$dir/ev/.$1.$$" "$dir/ev/$1"
[ ! -s "$dir/notify/command" ] || sh "$dir/bin/notify" "$1"
# A key is on its way to the input box: what the client does next, such as a dialog, waits for it (see tmux.sh).
if [ -n "$flight" ]; then
	tries=0
	while [ -n "$(ls "$dir/.press" 2>/dev/null)" ]; do
		# What a killed press left is removed.
		[ $((tries += 1)) -le 100 ] || rm -rf "$dir/.press"
		sleep 0.1 2>/dev/null || sleep 1
	done
	printf %s "$(date +%s.%N)" >"$dir/.returned.$$" && mv -f "$dir/.returned.$$" "$dir/.returned"
fi
