#!/bin/sh
# What `muster improve` does, from bare verbs: one agent for each test that fails, their branches brought home, those that hold put on
# one branch, and what does not fit left to an integrator. In a repository with pytest:
#   pipeline.sh TYPE [ARGS for the agents …]      ({test} in an argument is the name of the test)
set -eu
type=$1
shift
name() { printf %s "$1" | sed 's/.*:://; s/[^A-Za-z0-9_-]/-/g'; }
# Without -B, Python would run what it compiled of a file before two changes in the same second.
passes() { (cd "$tree" && python3 -B -m pytest -q "$1" >/dev/null 2>&1); }

base=$(git rev-parse HEAD)
tree=$(mktemp -d)/tree
git worktree add -q --detach "$tree" "$base"
trap 'git worktree remove --force "$tree"' EXIT

# Collect, and the true before: which tests fail?
failing=$(cd "$tree" && python3 -B -m pytest -q -rf --tb=no 2>/dev/null | sed -n 's/^FAILED \([^ ]*\).*/\1/p')
[ -n "$failing" ] || { echo "all tests pass"; exit 0; }

# Map: one agent for each.
for test in $failing; do
	agent=fix-$(name "$test")
	words=$(for word; do printf '%s\n' "$word" | sed "s/{test}/$(name "$test")/g"; done)
	# shellcheck disable=SC2086  # one word a line, and none has a space
	muster create "$agent" "$type" --no-connect --clean --label kind=fix -m "Fix $test, then: submit --outcome ok --summary TEXT" -- $words
done
muster wait -l kind=fix --until ready,done,failed --timeout 30m || :
muster list -l kind=fix --git
muster pull -l kind=fix
muster stop -l kind=fix

# Verify each branch, and put together what holds; what conflicts waits for the integrator.
git branch -f pipeline "$base"
git -C "$tree" switch -q pipeline
for test in $failing; do
	branch=muster/fix-$(name "$test") before=$(git -C "$tree" rev-parse HEAD)
	git -C "$tree" cherry-pick "$base..$branch" >/dev/null 2>&1 || { git -C "$tree" cherry-pick --abort 2>/dev/null || :; left="${left:-} $branch"; continue; }
	passes "$test" || { git -C "$tree" reset -q --hard "$before"; left="${left:-} $branch"; }
done
[ -z "${left:-}" ] || muster create integrator "$type" --no-connect --branch pipeline --clean -m "Bring these branches together:$left" -- "$@" || :
git log --oneline "$base..pipeline"
echo "left for the integrator:${left:- nothing}"
