#!/bin/sh
# mini ARGS…: mini-swe-agent on one task, with the agent class that tells muster what it does.
PYTHONPATH=$MUSTER_AGENT_DIR/client${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
exec mini --agent-class muster_mini.Agent --exit-immediately --output "$MUSTER_AGENT_DIR/client/trajectory.json" "$@"
