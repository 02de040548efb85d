# shellcheck shell=sh disable=SC2154  # $dir is the wrapper's
# layer: the client writes its mood where muster reads it.
mkdir -p "$dir/client/status"
export PARROT_MOOD="$dir/client/status/mood.json"
