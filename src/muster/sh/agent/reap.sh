#!/bin/sh
# reap IDS GRACE [KEEP...]: end every process of the agents with these ids (separated by commas), except the process ids to KEEP.
# A process belongs to an agent if MUSTER_AGENT_ID in its environment says so, or if the leader of its session belongs to it.
# TERM first, KILL after GRACE twentieths of a second. One look at the process table serves all agents.
#
# The agent's wrapper and recorder get no signal at first: they end by themselves once the program has ended, and record how.
ids=$1 grace=$2
shift 2
keep="$$ $PPID $*" sessions=''

mark() (
	IFS=,
	for id in $ids; do printf 'MUSTER_AGENT_ID=%s\n' "$id"; done
)

# Sets pids, their process groups, and the shells that wrap and record; adds to sessions. The state of every process is read
# only if there are pids, or were members of a session without the mark (strays).
strays=1
look() {
	pids='' groups='' shells=''
	if [ ! -r /proc/self/environ ]; then
		# shellcheck disable=SC2009  # pgrep does not look into the environment
		for pid in $(ps -axEwwo pid=,command= | grep -E "MUSTER_AGENT_ID=($(printf %s "$ids" | tr , '|'))( |\$)" |
			grep -v grep | sed 's/^ *//; s/ .*//'); do
			case " $keep " in *" $pid "*) ;; *) pids="$pids $pid" ;; esac
		done
		return 0
	fi
	marked='' wrapping='' count=0
	# shellcheck disable=SC2013,SC2062  # words are wanted; the pattern comes by stdin, these are files
	for file in $(mark | LC_ALL=C grep -lzxFs -f - /proc/[0-9]*/environ); do
		file=${file#/proc/}
		marked="$marked ${file%/environ}" count=$((count + 1))
	done
	[ -n "$marked$strays" ] || return 0
	# shellcheck disable=SC2086  # words
	set -- $marked
	files=
	for pid; do files="$files /proc/$pid/cmdline"; done
	# shellcheck disable=SC2013,SC2086
	for file in $(LC_ALL=C grep -lzs '^.*/agents/[A-Za-z0-9_-]*/bin/\(wrap\|recorder\)$' /dev/null $files); do
		file=${file#/proc/}
		wrapping="$wrapping ${file%/cmdline}" count=$((count - 1))
	done
	if [ -z "$strays" ] && [ "$count" = 0 ]; then
		shells=$wrapping
		return 0
	fi
	# The name of a process may hold anything; the other fields come after its last bracket. Only numbers are printed.
	eval "$(cat /proc/[0-9]*/stat 2>/dev/null | LC_ALL=C awk -v marked="$*" -v wrapping="$wrapping" -v keep="$keep" -v known="$sessions" '
		function set_of(words, set, i, n, word) {
			n = split(words, word, " ")
			for (i = 1; i <= n; i++) set[word[i]]
		}
		BEGIN {
			set_of(marked, ours)
			set_of(wrapping, shell)
			set_of(keep, kept)
			set_of(known, session)
		}
		{
			pid = $1 + 0
			sub(/^.*\) /, "")
			if ($1 ~ /^[ZX]/) next
			group[pid] = $3 + 0
			leader[pid] = $4 + 0
		}
		END {
			spared[0]; spared[1]
			for (pid in leader) {
				if (pid in kept || pid in shell) spared[group[pid]]
				if (pid in ours && !(pid in shell) && leader[pid] == pid) session[pid]
			}
			for (pid in leader) {
				if (pid in kept) continue
				if (pid in shell) shells = shells " " pid
				else if (pid in ours || leader[pid] in session) {
					pids = pids " " pid
					if (!(pid in ours)) strays = 1
					if (!(group[pid] in spared)) {
						spared[group[pid]]
						groups = groups " -" group[pid]
					}
				}
			}
			for (pid in session) sessions = sessions " " pid
			printf "pids=\"%s\" groups=\"%s\" shells=\"%s\" sessions=\"%s\" strays=\"%s\"\n", pids, groups, shells, sessions, strays
		}')"
}

# await TICKS PID...: wait until all have ended; 1 if TICKS twentieths of a second were not enough. Sets left.
# Most end at once: look often at first.
soon=20
await() {
	left=$1
	shift
	while [ $# -gt 0 ]; do
		stat=
		if kill -0 "$1" 2>/dev/null; then
			IFS= read -r stat 2>/dev/null <"/proc/$1/stat" || :
			case ${stat##*) } in Z*) ;; *)
				[ "$left" -gt 0 ] || return 1
				if [ "$soon" -gt 0 ]; then
					soon=$((soon - 1))
					sleep 0.01
				else
					sleep 0.05
					left=$((left - 1))
				fi
				continue
				;;
			esac
		fi
		shift
	done
}

look
[ -n "$pids$shells" ] || exit 0
# A stopped process does not act on TERM before it goes on.
# shellcheck disable=SC2086  # lists of numbers
if [ -n "$pids" ]; then
	kill -TERM $pids 2>/dev/null
	kill -CONT $pids 2>/dev/null
	await "$grace" $pids
	grace=$left
fi
# What was forked in the meantime counts too. A whole group is killed at once, so one that forks faster than its parent
# can be found does not get away.
round=0
while [ "$round" -lt 100 ]; do
	look
	[ -n "$pids" ] || break
	# shellcheck disable=SC2086
	kill -KILL $pids 2>/dev/null
	# shellcheck disable=SC2086
	[ -z "$groups" ] || kill -KILL -- $groups 2>/dev/null
	round=$((round + 1))
done
# shellcheck disable=SC2086
if [ -n "$shells" ] && ! await 40 $shells; then
	# A recorder that is told to end looks after what keeps it.
	kill -TERM $shells 2>/dev/null
	await "$grace" $shells || kill -KILL $shells 2>/dev/null
fi
exit 0
