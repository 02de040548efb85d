#!/bin/sh
# opencode start|resume [ARGS…]: opencode in its terminal, with muster's plugin beside the user's own configuration.
how=$1
shift
# A file or a folder of configuration comes on top of the user's own. One of both is free, or the user has named both.
if [ -z "${OPENCODE_TUI_CONFIG-}" ]; then
	OPENCODE_TUI_CONFIG=$MUSTER_AGENT_DIR/client/tui.json
elif [ -z "${OPENCODE_CONFIG_DIR-}" ]; then
	OPENCODE_CONFIG_DIR=$MUSTER_AGENT_DIR/client
else
	echo "muster: OPENCODE_TUI_CONFIG and OPENCODE_CONFIG_DIR are both set; one must be free for muster's plugin" >&2
	exit 2
fi
export OPENCODE_TUI_CONFIG OPENCODE_CONFIG_DIR
if [ "$how" = resume ]; then
	id=$(tail -n 1 "$MUSTER_AGENT_DIR/client/sessions" 2>/dev/null)
	case $id in *[!A-Za-z0-9_]* | '') ;; *) set -- --session "$id" "$@" ;; esac
fi
if [ -n "${MUSTER_PROMPT-}" ]; then
	set -- "--prompt=$MUSTER_PROMPT" "$@"
	MUSTER_FIRST=1
	export MUSTER_FIRST
	unset MUSTER_PROMPT
fi
exec opencode "$@"
