# shellcheck shell=sh
# Shared by every script that runs on a host. $1 is the state folder there, or empty.
# Names begin with mu_ so that nothing of the caller's environment is overwritten.
set -eu
mu_umask=$(umask)
umask 077
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin
mu_home=${1:-${MUSTER_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/muster}}
shift

die() {
	mu_code=$1
	shift
	printf '%s\n' "$*" >&2
	exit "$mu_code"
}

# A socket path must stay under 108 bytes: deep state folders get a short one.
mu_sock=$mu_home/tmux.sock
if [ "$(LC_ALL=C && printf %s "${#mu_sock}")" -gt 100 ]; then
	mu_short=${TMPDIR:-/tmp}
	[ "${#mu_short}" -lt 40 ] || mu_short=/tmp
	mu_short=$mu_short/muster-$(id -u)
	[ -d "$mu_short" ] || mkdir "$mu_short" 2>/dev/null || :
	# Anybody may have made a folder of that name in /tmp.
	if [ -z "$(find "$mu_short" -prune -type d -user "$(id -u)" 2>/dev/null)" ]; then die 1 "$mu_short is not a folder of yours"; fi
	mu_sock=$mu_short/$(printf %s "$mu_home" | cksum | tr -d ' ').sock
fi

mu_tmux() { tmux -S "$mu_sock" "$@"; }

# Of the panes of an agent's session the one that its wrapper runs in (`list-panes -s -f`): the agent may have made others.
# shellcheck disable=SC2034  # for the scripts that stand behind
mu_own='#{?@pane,#{==:#{@pane},#{pane_id}},1}'

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
