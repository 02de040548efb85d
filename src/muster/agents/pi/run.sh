#!/bin/sh
# pi start|resume [ARGS…]: pi in its terminal with muster's extension, beside the user's own configuration. Its conversation is
# kept in the agent's folder; `resume` goes on with the one that was open last.
how=$1
shift
last=$MUSTER_AGENT_DIR/session/client.jsonl
if [ "$how" = resume ]; then
	opened=$(head -n 1 "$MUSTER_AGENT_DIR/client/opened" 2>/dev/null)
	case $opened in
	*[!A-Za-z0-9._-]* | .* | '') ;;
	*) [ ! -f "$MUSTER_AGENT_DIR/session/$opened" ] || last=$MUSTER_AGENT_DIR/session/$opened ;;
	esac
fi
exec pi --session-dir "$MUSTER_AGENT_DIR/session" --session "$last" --extension "$MUSTER_AGENT_DIR/client/muster.js" "$@"
