#!/bin/sh
# What `muster improve` does, from bare verbs: one agent for each test that fails, their branches brought home, those that hold put on
# one branch, and what does not fit left to an integrator. In a repository with pytest:
#   pipeline.sh TYPE [ARGS for the agents …]      ({test} in an argument is the name of the test, or `integrator`)
set -eu
type=$1
shift
name() { printf %s "$1" | sed 's/.*:://; s/[^A-Za-z0-9_-]/-/g'; }
# Without -B, Python would run what it compiled of a file before two changes in the same second.
passes() { (cd "$tree" && python3 -B -m pytest -q "$@" >/dev/null 2>&1); }
begin() { # AGENT KIND BASE {test} TASK ARGS…
	agent=$1 kind=$2 from=$3 slot=$4 task="$5, commit, then: submit --outcome ok --summary TEXT"
	shift 5
	words=$(for word; do printf '%s\n' "$word" | sed "s/{test}/$slot/g"; done)
	# shellcheck disable=SC2086  # one word a line, and none has a space
	muster create "$agent" "$type" --no-connect --clean --branch "$from" --label "kind=$kind" -m "$task" -- $words
}
harvest() { # KIND. What did not go well, or not in time (exit code 4), is seen in the branches.
	muster wait -l "kind=$1" --timeout 30m || [ $? = 4 ]
	muster list -l "kind=$1" --git
	muster pull -l "kind=$1"
	muster stop -l "kind=$1"
}

base=$(git rev-parse HEAD)
tree=$(mktemp -d)/tree
git worktree add -q --detach "$tree" "$base"
trap 'git worktree remove --force "$tree"' EXIT

# Collect, and the true before: which tests fail?
failing=$(cd "$tree" && python3 -B -m pytest -q -rf --tb=no 2>/dev/null | sed -n 's/^FAILED \([^ ]*\).*/\1/p')
[ -n "$failing" ] || { echo "all tests pass"; exit 0; }

# Map: one agent for each.
for test in $failing; do begin "fix-$(name "$test")" fix "$base" "$(name "$test")" "Fix $test" "$@"; done
harvest fix

# Verify each branch, and put together what holds; what conflicts or does not hold is for the integrator.
git branch -f pipeline "$base"
git -C "$tree" switch -q pipeline
held='' left=''
for test in $failing; do
	branch=muster/fix-$(name "$test") before=$(git -C "$tree" rev-parse HEAD)
	git -C "$tree" cherry-pick "$base..$branch" >/dev/null 2>&1 || git -C "$tree" cherry-pick --abort 2>/dev/null || :
	if passes "$test"; then held="$held $test"; else git -C "$tree" reset -q --hard "$before"; left="$left $branch"; fi
done
echo "left for the integrator:${left:- nothing}"
if [ -n "$left" ]; then
	begin integrator integrate pipeline integrator "Bring these branches together on yours, so that their tests pass:$left" "$@"
	harvest integrate
	before=$(git -C "$tree" rev-parse HEAD)
	git -C "$tree" merge -q --ff-only muster/integrator
	# shellcheck disable=SC2086  # ids of tests, one a word
	[ -z "$held" ] || passes $held || { git -C "$tree" reset -q --hard "$before"; echo "the integrator broke what held"; }
fi
git log --oneline "$base..pipeline"
