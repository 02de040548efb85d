# shellcheck shell=sh
# trial probe|plain KEEP COMMAND…: a command in the work dir of an agent; `probe` is for pytest, with the plugin that came as its message
# ($MUSTER_PROMPT).
# Of the environment it gets what is named here, and the variables named in KEEP: no key or token of the user's that is not.
# What tests report is artifacts/report.jsonl in the agent's folder. Names begin with mt_, as what is not kept is unset.
set -u
mt_how=$1 mt_keep=" $2 "
shift 2
mt_dir=$MUSTER_AGENT_DIR/trial mt_report=$MUSTER_AGENT_DIR/artifacts/report.jsonl
mkdir -p "$mt_dir" "$MUSTER_AGENT_DIR/artifacts" || exit 1
[ "$mt_how" = plain ] || printf '%s\n' "$MUSTER_PROMPT" >"$mt_dir/muster_probe.py" || exit 1

for mt_name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
	case $mt_keep in *" $mt_name "*) continue ;; esac
	case $mt_name in
	PATH | HOME | USER | LOGNAME | SHELL | PWD | LANG | LANGUAGE | LC_* | TZ | TERM | TMPDIR | XDG_*) ;;
	PYTHON* | VIRTUAL_ENV | CONDA_PREFIX | LD_LIBRARY_PATH | DYLD_LIBRARY_PATH) ;;
	# So that all it starts is found when it is ended, meets no other tmux, and can commit.
	MUSTER_AGENT_ID | TMUX_TMPDIR | GIT_AUTHOR_NAME | GIT_AUTHOR_EMAIL | GIT_COMMITTER_NAME | GIT_COMMITTER_EMAIL) ;;
	*) unset "$mt_name" ;;
	esac
done
[ "$mt_how" = probe ] || exec "$@" </dev/null
PYTHONPATH=$mt_dir${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH

# One test can end the interpreter: as long as each start comes further, the rest gets another one.
mt_begun=0
while :; do
	mt_code=0
	"$@" -p muster_probe --maxfail=0 </dev/null || mt_code=$?
	[ ! -e "$mt_dir/ended" ] || exit 0
	mt_now=$(grep -c '^{"k":"start"' "$mt_report" 2>/dev/null) || :
	[ "${mt_now:-0}" -gt "$mt_begun" ] || exit "$mt_code"
	mt_begun=$mt_now
done
