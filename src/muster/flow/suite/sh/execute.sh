# shellcheck shell=sh
# execute probe|plain KEEP COMMAND…   Run a command in an agent's work dir. With `probe` the command is pytest, and the agent's message
# ($MUSTER_PROMPT) is the plugin that it loads.
# The command sees the variables named below and those in KEEP, so no other key or token of the user reaches it.
# The tests' report is artifacts/report.jsonl in the agent's folder. Our own names begin with mt_, because all others are unset.
set -u
mt_mode=$1 mt_keep=" $2 "
shift 2
mt_dir=$MUSTER_AGENT_DIR/tests mt_report=$MUSTER_AGENT_DIR/artifacts/report.jsonl
mkdir -p "$mt_dir" "$MUSTER_AGENT_DIR/artifacts" || exit 1
[ "$mt_mode" = plain ] || printf '%s\n' "$MUSTER_PROMPT" >"$mt_dir/muster_probe.py" || exit 1

for mt_name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
	case $mt_keep in *" $mt_name "*) continue ;; esac
	case $mt_name in
	PATH | HOME | USER | LOGNAME | SHELL | PWD | LANG | LANGUAGE | LC_* | TZ | TERM | TMPDIR | XDG_*) ;;
	PYTHON* | VIRTUAL_ENV | CONDA_PREFIX | LD_LIBRARY_PATH | DYLD_LIBRARY_PATH) ;;
	# Needed to find every process that the tests start, to keep them off other tmux servers, and to let them commit.
	MUSTER_AGENT_ID | TMUX_TMPDIR | GIT_AUTHOR_NAME | GIT_AUTHOR_EMAIL | GIT_COMMITTER_NAME | GIT_COMMITTER_EMAIL) ;;
	*) unset "$mt_name" ;;
	esac
done
[ "$mt_mode" = probe ] || exec "$@" </dev/null
PYTHONPATH=$mt_dir${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH

# A test can end the interpreter. Start another one for the rest, as long as each start gets further than the one before.
mt_begun=0
while :; do
	mt_code=0
	"$@" -p muster_probe --maxfail=0 </dev/null || mt_code=$?
	[ ! -e "$mt_dir/ended" ] || exit 0
	mt_now=$(grep -c '^{"k":"start"' "$mt_report" 2>/dev/null) || :
	[ "${mt_now:-0}" -gt "$mt_begun" ] || exit "$mt_code"
	mt_begun=$mt_now
done
