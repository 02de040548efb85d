#!/bin/sh
# reap ID GRACE [KEEP...]: end every process that carries MUSTER_AGENT_ID=ID, whatever it forked or
# detached, except those named; TERM first, KILL after GRACE twentieths of a second.
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
# Most end at once: look often at first. (A name in stat may hold anything; what counts stands behind its last bracket.)
soon=5
while [ "$grace" -gt 0 ]; do
	alive=
	for pid in $pids; do
		kill -0 "$pid" 2>/dev/null || continue
		stat=
		IFS= read -r stat 2>/dev/null <"/proc/$pid/stat" || :
		case ${stat##*) } in Z*) ;; *) alive=1 ;; esac
	done
	[ -n "$alive" ] || break
	if [ "$soon" -gt 0 ]; then
		soon=$((soon - 1))
		sleep 0.01
	else
		sleep 0.05
		grace=$((grace - 1))
	fi
done
# What was forked in the meantime counts too. A whole group is killed at once, so one that forks faster than its parent
# can be found does not get away; only the groups of those to keep are spared.
group() {
	IFS= read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
	stat=${stat##*) }
	stat=${stat#* }
	stat=${stat#* }
	printf '%s' "${stat%% *}"
}
spare=" 0 1 "
for pid in $keep; do spare="$spare$(group "$pid") "; done
round=0
while [ "$round" -lt 100 ]; do
	find_all
	[ -n "$pids" ] || exit 0
	groups=
	for pid in $pids; do
		leader=$(group "$pid")
		case "$spare$groups " in *" ${leader:-0} "* | *" -${leader:-0} "*) ;; *) groups="$groups -$leader" ;; esac
	done
	# shellcheck disable=SC2086
	kill -KILL $pids 2>/dev/null
	# shellcheck disable=SC2086
	[ -z "$groups" ] || kill -KILL -- $groups 2>/dev/null
	round=$((round + 1))
done
exit 0
