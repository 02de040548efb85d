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
if version=$(codex --no-daemon --version </dev/null 2>/dev/null); then
	set -- --no-daemon "$@"
else
	version=$(codex --version </dev/null 2>/dev/null)
fi
printf '%s\n' "$$" >"$dir/client/pid"

# At its first start, and at the first of a new version, it migrates its databases, and two that do so at once fail. So one goes
# first, and the others wait until its watch says that it is up.
home=${CODEX_HOME:-$HOME/.codex}
shared=${dir%/agents/*}/versions
mark=$shared/codex-$(printf %s "$home" | cksum | tr -d ' ')
migrated() { [ "$(cat "$mark" 2>/dev/null)" = "$version" ] && ls "$home"/state_*.sqlite >/dev/null 2>&1; }
waited=0
while ! migrated && [ "$waited" -lt 600 ] && mkdir -p "$shared"; do
	if mkdir "$mark.lock" 2>/dev/null; then
		printf '%s\n' "$$" >"$mark.lock/pid"
		printf '%s\n' "$version" >"$mark.lock/version"
		printf '%s\n' "$mark" >"$dir/client/migrates"
		break
	fi
	first=$(cat "$mark.lock/pid" 2>/dev/null)
	# The first one was killed, and so was its watch.
	[ -z "$first" ] || kill -0 "$first" 2>/dev/null || rm -rf "$mark.lock"
	sleep 0.1
	waited=$((waited + 1))
done
sh "$dir/bin/watch" start "$how" </dev/null >/dev/null 2>&1 &
exec codex "$@"
