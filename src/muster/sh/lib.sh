# shellcheck shell=sh
# Shared by every script that runs on a host. $1 is the state folder there, or empty.
# Names begin with mu_ so that nothing of the caller's environment is overwritten.
set -eu
mu_umask=$(umask)
umask 077
PATH=$PATH:/usr/local/bin:/opt/homebrew/bin
mu_home=${1:-${MUSTER_HOME:-${XDG_STATE_HOME:-$HOME/.local/state}/muster}}
shift
home=$mu_home

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
	if [ ! -w "$mu_short" ] || [ -h "$mu_short" ]; then die 1 "$mu_short is not a folder of yours"; fi
	mu_sock=$mu_short/$(printf %s "$mu_home" | cksum | tr -d ' ').sock
fi

mu_tmux() { tmux -S "$mu_sock" "$@"; }
