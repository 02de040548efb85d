#!/bin/sh
# Ten recorded agents (no model, no key, no network) fix a small program that has a tutorial and tests that cite it. Real bugs are fixed, two
# agents make the same fix, two conflict, one weakens a test, one is blocked. The verified changes become one branch. Everything happens in a
# temporary folder, where the page and the branch stay for you to look at.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/muster-demo.XXXXXX")
MUSTER_HOME=$work/state
export MUSTER_HOME
trap 'muster stop --all --grace 0 >/dev/null 2>&1 || :' EXIT

bold='' plain=''
[ ! -t 1 ] || bold=$(printf '\033[1m') plain=$(printf '\033[0m')
say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
run() {
	echo "\$ $*"
	"$@"
}

cp -r "$here/till" "$here/till-plays" "$work"
cd "$work/till"
rm -rf .muster .pytest_cache
echo __pycache__ >.gitignore
git init -q -b main
git config user.name "Demo User"
git config user.email demo@example.invalid
git add -A
git commit -q -m "till, with bugs"

say "A program with a tutorial, 44 tests that cite it, and bugs that they reveal. Each failing test gets an agent; here, ten recorded ones"
run muster improve -a replay --playbooks ../till-plays --times "${MUSTER_DEMO_TIMES:-2}" --run demo

say "One branch: first all changes other than implementations, then each fix, most important first"
run git log --oneline --reverse main..muster-run/demo

say "What the agents claimed, what was verified, and what was refused"
run muster runs show demo

say "The page of the run, with every transcript, recording and diff"
run muster report demo
echo
echo "The repository is $work/till. No process is left running. Remove it with: rm -rf $work"
