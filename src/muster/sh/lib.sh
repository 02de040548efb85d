# shellcheck shell=sh
# Shared by every script that runs on a host. $1 is the state folder there, or empty.
# Names begin with mu_ so that nothing of the caller's environment is overwritten.
set -eu
# Output of programs is matched in English. The user's own programs run in the user's locale, see mu_users_locale.
mu_lc_all=${LC_ALL-} mu_lc_set=${LC_ALL+1}
LC_ALL=C
export LC_ALL
mu_umask=$(umask)
umask 077
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin
mu_home=${1:-${MUSTER_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/muster}}
case $mu_home in /*) ;; *) mu_home=$(pwd)/$mu_home ;; esac
shift

die() {
	mu_code=$1
	shift
	printf '%s\n' "$*" >&2
	exit "$mu_code"
}

mu_users_locale() { if [ -n "$mu_lc_set" ]; then LC_ALL=$mu_lc_all; else unset LC_ALL; fi; }

# Wait until these files and folders are on the disk; where sync takes no arguments, it waits for all files.
mu_sync() { sync -- "$@" 2>/dev/null || sync; }

# Another user may have made a folder or link of that name in /tmp.
mu_is_ours() { [ -n "$(find "$1" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; }

# A socket path must stay under 108 bytes: deep state folders get a short one.
mu_sock=$mu_home/tmux.sock
if [ "${#mu_sock}" -gt 100 ]; then
	mu_short=${TMPDIR:-/tmp}
	[ "${#mu_short}" -lt 40 ] || mu_short=/tmp
	mu_short=$mu_short/muster-$(id -u)
	[ -d "$mu_short" ] || mkdir "$mu_short" 2>/dev/null || :
	mu_is_ours "$mu_short" || die 1 "$mu_short is not a folder of yours"
	mu_sock=$mu_short/$(printf %s "$mu_home" | cksum | tr -d ' ').sock
fi

# If the socket of a live server was removed, for example by a cleaner of /tmp, tmux makes it again on USR1.
if [ ! -S "$mu_sock" ] && [ -f "$mu_home/tmux.pid" ] && read -r mu_server <"$mu_home/tmux.pid"; then
	case $mu_server in
	'' | *[!0-9]*) ;;
	*)
		if grep -qzxF -e "$mu_sock" "/proc/$mu_server/cmdline" 2>/dev/null && kill -USR1 "$mu_server" 2>/dev/null; then
			for mu_tries in 1 2 3 4 5 6 7 8 9 10; do
				[ ! -S "$mu_sock" ] || break
				sleep 0.1 2>/dev/null || sleep 1
			done
		fi
		;;
	esac
fi

mu_tmux() { (mu_users_locale && exec tmux -S "$mu_sock" "$@"); }

# Print a line per process of an agent on this machine: the id of the agent, read from the environment.
mu_processes() {
	[ -r /proc/self/environ ] || return 0
	LC_ALL=C grep -hozs '^MUSTER_AGENT_ID=[A-Za-z0-9_-]*$' /proc/[0-9]*/environ | tr '\0' '\n' | sed 's/^MUSTER_AGENT_ID=//'
}

# Do what an agent's bin/event does, but with fewer processes and without running a file that the agent can change.
mu_event() { # DIR KIND
	mu_now=$(date +%s.%N)
	case $mu_now in *N) mu_now=${mu_now%.*} ;; esac
	mu_line="{\"t\":$mu_now,\"kind\":\"$2\"}"
	# Write only to a plain file: the agent may have replaced it by a pipe without a reader or a link to a user's file.
	if [ -h "$1/events.jsonl" ] || { [ -e "$1/events.jsonl" ] && [ ! -f "$1/events.jsonl" ]; }; then rm -rf "$1/events.jsonl"; fi
	if [ -d "$1/ev/$2" ] && [ ! -h "$1/ev/$2" ]; then rm -rf "$1/ev/$2"; fi
	[ ! -h "$1/ev" ] || return 1
	{ printf '%s\n' "$mu_line" >>"$1/events.jsonl"; } 2>/dev/null || :
	{ printf '%s\n' "$mu_line" >"$1/ev/.$2.$$" && mv -f "$1/ev/.$2.$$" "$1/ev/$2"; } 2>/dev/null || return 1
	[ ! -s "$1/notify/command" ] || (mu_users_locale && MUSTER_AGENT_DIR=$1 exec sh "$1/bin/notify" "$2")
}

# Of the panes of an agent's session the one that its wrapper runs in (`list-panes -s -f`): the agent may have made others.
# shellcheck disable=SC2034  # for the scripts that stand behind
mu_own='#{?@pane,#{==:#{@pane},#{pane_id}},1}'

# Print the path of the transcript that the client of the agent with the folder DIR keeps. An agent could name any of the user's
# files as its transcript, so outside DIR only files that clients name by a UUID are accepted.
mu_transcript() { # DIR
	if [ -h "$1" ] || [ -h "$1/ev" ] || [ -h "$1/ev/session" ]; then return 0; fi
	mu_file=$(sed -n 's/.*"where":"\([^"\\]*\)".*/\1/p' "$1/ev/session" 2>/dev/null | head -n 1) || mu_file=
	# A client whose hooks do not run tells nothing. In its own configuration folder its conversation is named by its session's key.
	if [ -z "$mu_file" ] && [ -f "$1/client/key" ] && [ ! -h "$1/client/key" ]; then
		for mu_file in "$1"/client/home/*/*/"$(head -c 40 "$1/client/key")".jsonl; do [ ! -f "$mu_file" ] || break; done
	fi
	mu_uuid='[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'
	case $mu_file in
	*/../* | *[!\ -~]*) return 0 ;;
	"$1"/*.jsonl) ;;
	*)
		printf '%s\n' "$mu_file" | grep -qE "^/.*/([^/]*-)?$mu_uuid\.jsonl\$" || return 0
		;;
	esac
	[ ! -f "$mu_file" ] || [ -h "$mu_file" ] || [ -h "${mu_file%/*}" ] || printf '%s\n' "$mu_file"
}

# Enter the folder of an agent, or with `trash` that of a destroyed agent. An agent may have replaced its folder by a link, which
# is never followed.
mu_enter() { # ID [trash]
	for mu_dir in "$mu_home/agents/$1" ${2:+"$mu_home/trash/$1/agent"}; do
		[ ! -h "$mu_dir" ] || die 1 "$mu_dir was replaced by a link"
		if [ -d "$mu_dir" ]; then cd "$mu_dir" && return; fi
	done
	die 3 "no agent $1"
}

# For scripts that do something to many agents: first mu_agents, then for each `mu_go ID || continue`, which goes to its folder, or
# tells what is in the way. Neither starts a process, and no link is followed.
mu_agents() { if cd -P "$mu_home/agents" 2>/dev/null; then mu_base=$PWD; else mu_base=$mu_home/agents; fi; }
mu_go() { # ID
	if [ -h "$mu_base/$1" ]; then
		printf '%s failed %s was replaced by a link\n' "$1" "$mu_base/$1"
		return 1
	fi
	cd -P "$mu_base/$1" 2>/dev/null && [ "$PWD" = "$mu_base/$1" ] && return
	printf '%s missing\n' "$1"
	return 1
}

# Return whether a path below the current folder leads through a link.
mu_linked() { # PATH
	mu_rest=$1
	while :; do
		[ ! -h "$mu_rest" ] || return 0
		case $mu_rest in */*) mu_rest=${mu_rest%/*} ;; *) return 1 ;; esac
	done
}

# A folder for this run of a script, below our own: gc removes what a killed one leaves. Elsewhere only where ours cannot be written.
mu_scratch() {
	(umask 077 && mkdir -p "$mu_home/tmp" && cd "$mu_home/tmp" && mktemp -d "$PWD/XXXXXXXX") 2>/dev/null || mktemp -d
}

# Take a name for an agent that has its folder in agents/; 17 when another has it. Run in the state folder.
# link(2) is atomic and brings the content along. A name whose agent is gone is taken off by one at a time.
mu_take() { # ID NAME
	printf '%s\n' "$1" >"names/.$1" || return 1
	mu_tries=0
	until mu_said=$(ln "names/.$1" "names/$2" 2>&1); do
		mu_owner=$(cat "names/$2" 2>/dev/null) || mu_owner=
		[ "$mu_owner" != "$1" ] || break
		mu_tries=$((mu_tries + 1))
		if [ -n "$mu_owner" ] && [ -d "agents/$mu_owner" ]; then
			rm -f "names/.$1"
			return 17
		elif [ "$mu_tries" -gt 50 ]; then
			rm -f "names/.$1"
			die 1 "cannot take the name $2: $mu_said"
		elif mkdir "names/.$2.off" 2>/dev/null; then
			mu_owner=$(cat "names/$2" 2>/dev/null) || mu_owner=
			[ -n "$mu_owner" ] && [ -d "agents/$mu_owner" ] || rm -f "names/$2"
			rmdir "names/.$2.off"
		else
			[ -z "$(find "names/.$2.off" -prune -mmin +1 2>/dev/null)" ] || rmdir "names/.$2.off" 2>/dev/null || :
			sleep 0.1 2>/dev/null || sleep 1
		fi
	done
	rm -f "names/.$1"
}

# Print what a program says of its version. It is asked once for each file of that name: npm gives all files the same time, so the
# file is told from others by its inode and the time of its last change of any kind. One that does not answer in 10 s has no version.
mu_version() { # PROGRAM
	mu_program=$(command -v -- "$1") || return 0
	case $mu_program in /*) ;; *) return 0 ;; esac
	mu_file=$(LC_ALL=C ls -Llnic -- "$mu_program" 2>/dev/null) || return 0
	mu_known=$mu_home/versions/${1##*/}
	if { read -r mu_asked && read -r mu_said; } 2>/dev/null <"$mu_known" && [ "$mu_asked" = "$mu_file" ]; then
		printf '%s\n' "$mu_said"
		return 0
	fi
	mkdir -p "$mu_home/versions" && mu_answer=$(mktemp "$mu_home/versions/.XXXXXXXX") || return 0
	"$mu_program" --version </dev/null >"$mu_answer" 2>/dev/null &
	mu_asked=$! mu_tries=0
	while kill -0 "$mu_asked" 2>/dev/null && [ "$mu_tries" -lt 100 ]; do
		mu_tries=$((mu_tries + 1))
		sleep 0.1 2>/dev/null || sleep 1
	done
	kill -9 "$mu_asked" 2>/dev/null || :
	wait "$mu_asked" 2>/dev/null || :
	mu_said=$(head -n 1 "$mu_answer" | cut -c 1-100)
	printf '%s\n%s\n' "$mu_file" "$mu_said" >"$mu_answer" && mv -f "$mu_answer" "$mu_known" || rm -f "$mu_answer"
	printf '%s\n' "$mu_said"
}
