#!/bin/sh
# mini ARGS…: mini-swe-agent on one task, with the agent class that tells muster what it does.
# What it starts may import from the work dir; mini itself does not: the agent is at work on the code there.
MUSTER_PYTHONPATH=${PYTHONPATH-}
PYTHONPATH=$(printf %s "$MUSTER_PYTHONPATH" | awk -v RS=: -v ORS= -v top="$(cat "$MUSTER_AGENT_DIR/workdir")" \
	'$0 != "" && index($0 "/", top "/") != 1 { print ":" $0 }')
PYTHONPATH=$MUSTER_AGENT_DIR/client$PYTHONPATH
export PYTHONPATH MUSTER_PYTHONPATH
exec mini --agent-class muster_mini.Agent --exit-immediately --output "$MUSTER_AGENT_DIR/client/trajectory.json" "$@"
