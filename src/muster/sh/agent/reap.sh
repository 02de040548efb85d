#!/bin/sh
# reap ID GRACE [KEEP...]: end every process that carries MUSTER_AGENT_ID=ID, whatever it forked or
# detached, except those named; TERM first, KILL after GRACE tenths of a second.
id=$1 grace=$2
shift 2
keep=" $$ $PPID $* "

find_all() {
	pids=
	if [ -r /proc/self/environ ]; then
		# shellcheck disable=SC2013  # words are what is wanted
		for file in $(grep -lzxs "MUSTER_AGENT_ID=$id" /proc/[0-9]*/environ); do
			pid=${file#/proc/}
			pid=${pid%/environ}
			case $keep in *" $pid "*) ;; *) [ ! -d "/proc/$pid" ] || pids="$pids $pid" ;; esac
		done
	else
		# shellcheck disable=SC2009  # pgrep does not look into the environment
		for pid in $(ps -axEwwo pid=,command= | grep "MUSTER_AGENT_ID=$id" | grep -v grep | sed 's/^ *//; s/ .*//'); do
			case $keep in *" $pid "*) ;; *) pids="$pids $pid" ;; esac
		done
	fi
}

find_all
[ -n "$pids" ] || exit 0
# A stopped process does not act on TERM before it goes on.
# shellcheck disable=SC2086  # a list of numbers
kill -TERM $pids 2>/dev/null
# shellcheck disable=SC2086
kill -CONT $pids 2>/dev/null
while [ "$grace" -gt 0 ]; do
	alive=
	for pid in $pids; do
		if kill -0 "$pid" 2>/dev/null; then
			case $(cat "/proc/$pid/stat" 2>/dev/null) in *") Z "*) ;; *) alive=1 ;; esac
		fi
	done
	[ -n "$alive" ] || break
	sleep 0.05
	grace=$((grace - 1))
done
# What was forked in the meantime counts too; three rounds end a fork that runs.
for _ in 1 2 3; do
	find_all
	[ -n "$pids" ] || exit 0
	# shellcheck disable=SC2086
	kill -KILL $pids 2>/dev/null
done
exit 0
