#!/bin/sh
# A first session with muster: a small repository, three agents that replay a playbook (no model, no key, no network), and
# every step a person would take. Everything happens in a temporary folder, which is removed at the end.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
MUSTER_HOME=$work/state
export MUSTER_HOME
NO_COLOR=1
export NO_COLOR
trap 'muster stop --all --grace 0 >/dev/null 2>&1 || :; rm -rf "$work"' EXIT

bold='' plain=''
[ ! -t 1 ] || bold=$(printf '\033[1m') plain=$(printf '\033[0m')
say() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
run() {
	printf '$'
	for word; do
		case $word in *[!A-Za-z0-9_./=-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
	done
	echo
	"$@"
}

mkdir "$work/greeter"
cd "$work/greeter"
git init -q -b main
git config user.name "Demo User"
git config user.email demo@example.invalid
cp "$here"/greeter/* .
cp -r "$here/plays" ..
git add -A
git commit -q -m "A greeter with two bugs"
echo "idea: greet in other languages too" >notes.txt

say "A small program with two bugs, and a note that is not committed yet"
run git status --short
run sh test.sh || :

say "One agent per bug, and one for the docs: each gets its own work dir, branch and terminal"
run muster create empty-name replay --no-connect -m "Greeting nobody should fail" -- ../plays/empty-name.toml
run muster create shout replay --no-connect -m "--shout does nothing" -- ../plays/shout.toml
run muster create docs replay --no-connect --label kind=docs -- ../plays/docs.toml
run muster list

say "The docs agent has a question; the others finish without help"
run muster wait docs --until waiting --timeout 60s
run muster explain docs
run muster answer docs "Yes, with one example"
run muster wait --all --timeout 60s
run muster list --git

say "What did they do?"
run muster diff shout
run muster transcript docs --last 3

say "Pull the work; your own work tree only changes when you merge"
run muster pull --all
run muster pull empty-name --merge
run muster pull shout --merge
run git log --oneline --graph
run sh test.sh

say "Destroy loses nothing: a destroyed agent goes to the trash and can be restored"
run muster destroy docs
run muster list
run muster restore docs
run muster diff docs --stat

say "Your uncommitted note is unchanged, and nothing is left running"
run cat notes.txt
run muster stop --all
