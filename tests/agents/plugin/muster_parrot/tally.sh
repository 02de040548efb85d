#!/bin/sh
# tally LOG: a token for each line.
printf '{"input_tokens":%d,"output_tokens":%d}\n' "$(grep -c '"you"' "$1")" "$(grep -c '"me"' "$1")" >"$MUSTER_AGENT_DIR/usage.json"
