#!/bin/sh
# opencode start|resume|clone [ARGS…]: opencode in its terminal, with muster's plugin beside the user's own configuration. A clone has
# the conversation to go on with in session/export.json.
how=$1
shift
# This file comes on top of the user's own tui.json; there is room for one.
if [ -n "${OPENCODE_TUI_CONFIG-}" ]; then
	echo "muster: OPENCODE_TUI_CONFIG is set, and muster needs it; put that into ~/.config/opencode/tui.json" >&2
	exit 2
fi
OPENCODE_TUI_CONFIG=$MUSTER_AGENT_DIR/client/tui.json
export OPENCODE_TUI_CONFIG
if [ -f "$MUSTER_AGENT_DIR/client/permission.json" ]; then
	if [ -n "${OPENCODE_PERMISSION-}" ]; then
		echo "muster: OPENCODE_PERMISSION is set, and --permissions policy needs it; put that into ~/.config/opencode/opencode.json" >&2
		exit 2
	fi
	OPENCODE_PERMISSION=$(cat "$MUSTER_AGENT_DIR/client/permission.json")
	export OPENCODE_PERMISSION
fi
if [ "$how" = clone ]; then
	opencode import "$MUSTER_AGENT_DIR/session/export.json" || exit
	how=resume
fi
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
