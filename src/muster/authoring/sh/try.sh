# shellcheck shell=sh
# Examples, run in an agent's work dir on its host, with a home and temporary folders of their own and nothing of the caller's environment.
#   begin ID                  make the folders; prints where
#   run ID DIR SECONDS BYTES  run the example on stdin; prints its exit code (or `late`), then at most BYTES of its output
#   end ID DIR                end all that the examples left running, and remove the folders
set -eu
verb=$1 id=$2
shift 2

reap() {
	[ -d /proc/self ] || return 0
	for mark in $(grep -lzxF "MUSTER_TRY=$dir" /proc/[0-9]*/environ 2>/dev/null || :); do
		mark=${mark#/proc/}
		kill -KILL "${mark%/environ}" 2>/dev/null || :
	done
}

case $verb in
begin)
	dir=$(mktemp -d "${TMPDIR:-/tmp}/muster-try.XXXXXX")
	mkdir -p "$dir/home/.config" "$dir/home/.cache" "$dir/home/.local/share" "$dir/home/.local/state" "$dir/tmp" "$dir/run"
	chmod 700 "$dir/run"
	printf '%s\n' "$dir"
	;;
run)
	dir=$1 seconds=$2 bytes=$3
	cat >"$dir/example"
	rm -f "$dir/late"
	set -- env -i PATH="$PATH" LANG="${LANG:-C.UTF-8}" USER="${USER:-}" LOGNAME="${LOGNAME:-}" TERM=dumb \
		HOME="$dir/home" TMPDIR="$dir/tmp" XDG_RUNTIME_DIR="$dir/run" TMUX_TMPDIR="$dir/run" XDG_CONFIG_HOME="$dir/home/.config" \
		XDG_CACHE_HOME="$dir/home/.cache" XDG_DATA_HOME="$dir/home/.local/share" XDG_STATE_HOME="$dir/home/.local/state" \
		PAGER=cat GIT_PAGER=cat MANPAGER=cat GIT_TERMINAL_PROMPT=0 GIT_CONFIG_NOSYSTEM=1 \
		GIT_AUTHOR_NAME=muster GIT_AUTHOR_EMAIL=muster@muster.invalid GIT_COMMITTER_NAME=muster GIT_COMMITTER_EMAIL=muster@muster.invalid \
		MUSTER_AGENT_ID="$id" MUSTER_TRY="$dir" bash -e "$dir/example"
	# In a session of its own, all of it can be ended at once.
	if command -v setsid >/dev/null; then set -- setsid "$@"; fi
	"$@" </dev/null >"$dir/output" 2>&1 &
	pid=$!
	(
		trap 'kill "$!" 2>/dev/null; exit' TERM
		MUSTER_TRY=$dir sleep "$seconds" &
		wait "$!"
		: >"$dir/late"
		kill -KILL -- "-$pid" 2>/dev/null || kill -KILL "$pid" 2>/dev/null
	) >/dev/null 2>&1 &
	watch=$!
	code=0
	wait "$pid" 2>/dev/null || code=$?
	kill "$watch" 2>/dev/null || :
	[ ! -e "$dir/late" ] || code=late
	printf '%s\n' "$code"
	head -c "$bytes" "$dir/output"
	;;
end)
	dir=$1
	case $dir in */muster-try.*) ;; *) exit 2 ;; esac
	reap
	reap
	chmod -R u+rwX "$dir" 2>/dev/null || :
	rm -rf "$dir"
	;;
esac
