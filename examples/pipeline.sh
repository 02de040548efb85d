#!/bin/sh
# A small version of `muster improve` built from single commands: one agent per failing test; pull their branches; put those whose test
# passes on one branch; leave the others to an integrator agent. Run it in a repository with pytest:
#   pipeline.sh TYPE [ARGS for the agents …]      ({test} in an argument becomes the name of the test, or `integrator`)
set -eu
type=$1
shift
name() { printf %s "$1" | sed 's/.*:://; s/[^A-Za-z0-9_-]/-/g'; }
# Without -B, Python could use stale bytecode for a file that changed twice within a second.
passes() { (cd "$tree" && python3 -B -m pytest -q "$@" >/dev/null 2>&1); }
begin() { # AGENT KIND BASE {test} TASK ARGS…
	agent=$1 kind=$2 from=$3 slot=$4 task="$5, commit, then: submit --outcome ok --summary TEXT"
	shift 5
	words=$(for word; do printf '%s\n' "$word" | sed "s/{test}/$slot/g"; done)
	# shellcheck disable=SC2086  # one word per line, without spaces
	muster create "$agent" "$type" --no-connect --clean --branch "$from" --label "kind=$kind" -m "$task" -- $words
}
harvest() { # KIND. Agents that failed or timed out (exit code 4) are detected later by testing their branches.
	muster wait -l "kind=$1" --timeout 30m || [ $? = 4 ]
	muster list -l "kind=$1" --git
	muster pull -l "kind=$1"
	muster stop -l "kind=$1"
}

base=$(git rev-parse HEAD)
tree=$(mktemp -d)/tree
git worktree add -q --detach "$tree" "$base"
trap 'git worktree remove --force "$tree"' EXIT

# Collect the tests that fail before any change.
failing=$(cd "$tree" && python3 -B -m pytest -q -rf --tb=no 2>/dev/null | sed -n 's/^FAILED \([^ ]*\).*/\1/p')
[ -n "$failing" ] || { echo "all tests pass"; exit 0; }

# Map: start one agent per failing test.
for test in $failing; do begin "fix-$(name "$test")" fix "$base" "$(name "$test")" "Fix $test" "$@"; done
harvest fix

# Verify each branch and collect those whose test passes. Branches that conflict or fail are left to the integrator.
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
	begin integrator integrate pipeline integrator "Merge these branches into yours so that their tests pass:$left" "$@"
	harvest integrate
	before=$(git -C "$tree" rev-parse HEAD)
	git -C "$tree" merge -q --ff-only muster/integrator
	# shellcheck disable=SC2086  # one test id per word
	[ -z "$held" ] || passes $held || { git -C "$tree" reset -q --hard "$before"; echo "the integrator broke tests that passed"; }
fi
git log --oneline "$base..pipeline"
