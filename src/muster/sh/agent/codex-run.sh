#!/bin/sh
# run new|told|resume OPTION… [MESSAGE]: Codex, in place of this shell, and a watch beside it until its input box is open.
# told: there is a first message behind the options. resume: the conversation that its hooks named last.
dir=${MUSTER_AGENT_DIR:-$(dirname "$(dirname "$0")")}
how=$1
shift
mkdir -p "$dir/client"
if [ "$how" = resume ]; then
	id=$(sed -n 's/.*"where":"[^"\\]*-\([0-9a-f]\{8\}-[0-9a-f-]\{27\}\)\.jsonl".*/\1/p' "$dir/ev/session" 2>/dev/null)
	[ -z "$id" ] || set -- resume "$id" "$@"
elif [ -f "$dir/session/client.jsonl" ]; then
	# A conversation to go on with, put where the client looks for it.
	id=$(cat "$dir/client/key")
	folder=${CODEX_HOME:-$HOME/.codex}/sessions/$(date +%Y/%m/%d)
	mkdir -p "$folder"
	mv "$dir/session/client.jsonl" "$folder/rollout-$(date +%Y-%m-%dT%H-%M-%S)-$id.jsonl"
	set -- resume "$id" -C "$PWD" "$@"
fi
# A session of the shared daemon would run without our hooks. Versions that have no daemon do not know the option either.
if codex --no-daemon --version </dev/null >"$dir/client/version" 2>/dev/null; then
	set -- --no-daemon "$@"
fi
printf '%s\n' "$$" >"$dir/client/pid"
sh "$dir/bin/watch" start "$how" </dev/null >/dev/null 2>&1 &
exec codex "$@"
