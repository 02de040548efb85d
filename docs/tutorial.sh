#!/bin/bash
# muster, by example.
# Each block says what you want in plain words and shows what to type. Read it from the top, or look for a word.
# You are in a git repository of yours. Names such as fix-login are examples; choose your own.

# =====================================================================
# 1. First steps
# =====================================================================

# See all verbs, in groups.
muster --help

# See the examples and every option of one verb. Both forms do the same.
muster create --help
muster help create

# Which muster is this?
muster --version

# Is all there that muster needs? What is missing is named, with the command that fixes it.
muster doctor

# Run a command as an agent. It gets a work dir and a branch of its own, and a terminal that goes on without yours.
muster create hello command --no-connect -- sh -c 'echo "hello from $MUSTER_AGENT"; sleep 600'

# See who is there and in which state.
muster list

# The short form of list.
muster ls

# Look at an agent's screen without touching it.
muster capture hello

# Run something in the agent's work dir. The output and the exit code are the command's own.
muster exec hello -- git status --short --branch

# Attach your terminal to the agent. Leave it with Ctrl-b d; the agent goes on.
muster connect hello

# End the agent. Its files and its branch stay.
muster stop hello

# Remove the agent. Nothing is lost: what it had is in the trash for 30 days.
muster destroy hello

# =====================================================================
# 2. Making agents
# =====================================================================

# Start a coding agent on a task. The first word is always the name, the second the type.
muster create fix-login claude -m "Fix the login test and commit"

# Without a name one is made up; without a type it is the first of claude, codex and opencode on your PATH.
muster create --no-connect

# On a terminal, create attaches when it is done. Stay where you are instead.
muster create review claude --no-connect --message "Review the last commit"

# The task is long: take it from a file.
echo "Make the tests faster. Measure before and after." > ../task.md
muster create faster claude --no-connect --message-file ../task.md

# Or from a pipe.
git log -3 -p | muster create notes claude --no-connect --message-file -

# A plain command finds the message in $MUSTER_PROMPT.
muster create echo command --no-connect -m "from the message" -- sh -c 'echo "I was told: $MUSTER_PROMPT"'

# Everything behind -- goes to the program as it is. This runs your tests beside you.
muster create tests command --no-connect -- make test

# Play a recorded agent: a real session with no model, no key and no cost. docs/playbooks.md has all steps.
cat > ../greet.toml <<'END'
[[step]]
say = "I will add a greeting."
[[step]]
write = "greet.txt"
text = "hello\n"
[[step]]
commit = "Add a greeting"
[[step]]
ask = "Shall I also say goodbye?"
[[step]]
say = "You said: {message}"
END
muster create greet replay --no-connect -- ../greet.toml

# Three agents on the same task: try-1, try-2 and try-3.
muster create try replay --count 3 --no-connect -- ../greet.toml

# Put labels on an agent, to find it by later.
muster create count-lines command --label run=42 --label kind=check --no-connect -- sh -c 'git ls-files | xargs wc -l'

# Make it, or go on with it when it is there already. Safe to run twice.
muster create nightly command --reuse --no-connect -- sleep 600
muster create nightly command --reuse --no-connect -- sleep 600

# End the agent by itself after a while. Its state is then failed, with the reason timeout.
muster create short command --timeout 90s --no-connect -- sleep 600

# Set a hard limit of memory. Where the host cannot keep it, create refuses and says why.
muster create small command --memory 512m --no-connect -- sleep 60

# Give the agent variables: a value, or your own variable by its name. They show on no command line.
export API_TOKEN=secret
muster create env command --env STAGE=test --env API_TOKEN --no-connect -- sh -c 'echo "$STAGE, ${#API_TOKEN} characters"'

# Take variables from a file of NAME=value lines.
printf '%s\n' '# for the tests' 'STAGE=test' 'DB_NAME=shop' > ../test.env
muster create env-file command --env-file ../test.env --no-connect -- sh -c 'echo "$STAGE $DB_NAME"'

# Who answers the client's permission dialogs? You (ask, the default), your [permissions] (policy), or nobody is asked (bypass).
muster config set permissions.allow '["Bash(make test)", "Edit"]'
muster create careful claude --permissions ask --no-connect -m "Tidy the docs"
muster create by-rules claude --permissions policy --no-connect -m "Tidy the tests"
muster create trusted claude --permissions bypass --no-connect -m "Tidy the build"

# =====================================================================
# 3. Where an agent works
# =====================================================================

# In a git repository the agent gets a worktree on branch muster/NAME. Your uncommitted work comes along, your tree stays as it is.
muster create in-worktree command --mode worktree --no-connect -- git status

# Leave your uncommitted work out: start from the commit.
muster create from-commit command --clean --no-connect -- git status

# Start from another branch, tag or commit.
muster create from-main command --branch main --no-connect -- git log -1

# Choose the name of the new branch.
muster create named-branch command --branch :topic/login --no-connect -- git branch --show-current

# Both: start from main, work on topic/pay.
muster create both command --branch main:topic/pay --no-connect -- git branch --show-current

# A clone of its own. Its commits come back only when you pull.
muster create own-clone command --mode mirror --no-connect -- git log -1

# A folder without git is copied. diff and pull work all the same.
mkdir -p ../plain && echo one > ../plain/list.txt
muster create copied command --mode copy --from ../plain --no-connect -- sh -c 'echo two >> list.txt'

# Work in the folder itself. destroy never removes it.
muster create right-here command --mode in-place --no-connect -- ls

# Start from another folder than the one you are in.
muster create elsewhere command --from ../plain --no-connect -- ls

# Start from what another agent has now, committed or not.
muster create second-look command --from greet --no-connect -- git log --oneline -2

# Start from a repository that you do not have here.
muster create fresh command --from https://git.example.com/shop.git --no-connect -- ls

# =====================================================================
# 4. Looking at agents
# =====================================================================

# Who needs you? Who failed?
muster list --state waiting --state failed

# Only some agents: names and globs work as with every verb, and so do names on stdin. Without a name, or with --all, it shows all.
muster list greet 'try-*'
muster list --all

# Only agents with a label.
muster list --label run=42

# Only agents of this repository. Without it, list shows all agents wherever you are.
muster list --here

# Only agents of one type, on one host. This machine is called local.
muster list --type replay --host local

# How many commits is each one ahead, and how many files has it changed?
muster list --git

# Choose the columns: every key of --json can stand in the text.
muster list --format '{name} {state} {branch}'

# Keep the list on the screen and see every change. Ctrl-C ends it.
muster list --watch

# Why is this agent in its state? Every piece of evidence, with its age.
muster explain greet

# What did each one use, and what did that cost? What is not known is empty, never 0; list --json has it for each model.
muster list --format '{name} {tokens} {cost_usd}'

# See the screen with its colours.
muster capture greet --ansi

# Also what has scrolled away.
muster capture greet --scrollback

# Save the whole session as a recording that asciinema plays, with pauses cut to two seconds.
muster capture greet --cast ../greet.cast --idle 2

# Read the conversation.
muster transcript greet

# Only the end of it.
muster transcript greet --last 3

# Read along while the agent works. Ctrl-C ends it.
muster transcript greet --follow

# What happened to the agent, and when?
muster events greet

# The last ten events.
muster events greet --last 10

# Each event as it comes. It ends when the agent is destroyed.
muster events greet --follow

# =====================================================================
# 5. Talking to agents
# =====================================================================

# Wait until an agent has finished its turn, asks something, or has ended.
muster wait greet

# The agent asks a question: read all of it.
muster answer greet

# Answer it.
muster answer greet "no, that is all"

# Send a message. `delivered` means there is proof that the agent took it.
muster wait greet --until ready --timeout 60s
muster message greet -m "Thank you"

# Send the same to several agents at once. Quote the pattern, so that your shell leaves it alone.
muster message 'try-*' --message "no, commit what you have"

# To all agents with a label. A plain command is typed to: there is no proof, and the answer says `typed`.
muster create console command --label kind=console --no-connect -- cat
muster message --label kind=console -m "hello"

# A long message from a file, or from a pipe.
muster message greet --message-file ../task.md
git log -1 -p | muster message greet --message-file -

# A leading / is sent as text. With --raw it is a command of the client itself.
muster message fix-login --raw -m "/compact"

# Tell everyone. Agents that have ended are reported as failures; the others get the message.
muster message --all -m "Please commit within five minutes"

# An agent asks for a permission: allow it, or deny it with no.
cat > ../ask.toml <<'END'
[[step]]
permission = "rm -rf build"
tool = "Bash"
[[step]]
say = "Cleaned."
END
muster create clean-up replay --no-connect -- ../ask.toml
muster wait clean-up --until waiting --timeout 60s
muster answer clean-up yes

# Wait for several agents, but not for ever. Exit code 4 means the time was up.
muster wait try-1 try-2 --timeout 10m

# Wait for the first one that needs you.
muster wait 'try-*' --any --until waiting --until ready

# Wait for all agents of a run to end well. An agent that fails ends the wait with exit code 1.
muster wait --label run=42 --until done

# Is anybody still at work? Wait two seconds to see; exit code 4 means yes.
muster wait --all --timeout 2s

# =====================================================================
# 6. Connecting
# =====================================================================

# Take over: your terminal is the agent's. Inside tmux your client is switched there, and comes back when you leave.
muster connect fix-login

# Only look. No key goes through, and the agent's terminal keeps its size.
muster connect fix-login --watch

# Open the agent in a window of its own. The command finds MUSTER_AGENT, MUSTER_ADDRESS and MUSTER_ATTACH.
muster connect fix-login --connect-command 'xterm -e sh -c "$MUSTER_ATTACH"'

# The same right after create.
muster create in-window command --connect-command 'echo "to attach: $MUSTER_ATTACH"' -- sleep 60

# =====================================================================
# 7. Running things in a work dir
# =====================================================================

# Run the tests on what the agent has now. It works on agents that have ended, too.
muster exec greet -- sh -c 'git diff --check && echo clean'

# Feed it a file and keep its output.
muster exec greet -- tr a-z A-Z < ../task.md > ../shouted.txt

# On a terminal this is a shell in the work dir.
muster exec greet -- bash

# =====================================================================
# 8. Bringing work home
# =====================================================================

# What did the agent change? Commits, and what it has not committed.
muster diff greet

# Only how much, file by file.
muster diff greet --stat

# Only the names of the files, and only of what is committed.
muster diff greet --name-only --committed

# Bring its commits to branch muster/greet of your repository. What you have checked out stays as it is.
muster pull greet
git log --oneline -1 muster/greet

# Bring them and merge them into what you have checked out.
muster pull greet --merge

# Bring them and put them on top of your own commits.
muster pull try-1 --rebase

# Bring them as one commit.
muster pull try-2 --squash

# Also bring what the agent has not committed. It becomes one commit on branch muster/NAME-wip.
muster exec try-3 -- sh -c 'echo draft > draft.txt'
muster pull try-3 --uncommitted

# The branch here has commits that the agent does not have: replace it.
muster pull own-clone --force

# Bring files instead of commits: reports, logs, pictures.
muster exec greet -- sh -c 'mkdir -p reports && echo "<p>ok" > reports/index.html'
muster pull greet --files 'reports/*.html' --to ../out

# Pull into another clone of the repository.
git clone --quiet . ../second-clone
muster pull greet --to ../second-clone

# Bring the work of many agents, chosen by name or by label.
muster pull 'try-*'
muster pull --label run=42

# Bring everybody's work. One that fails does not keep the others back.
muster pull --all

# The other way: your new commits for the agent.
git commit --quiet --allow-empty -m "A change of mine"
muster push from-commit

# The agent has commits too: merge yours into its branch.
muster push greet --merge

# Give it another branch than the one you have checked out.
muster push in-worktree --ref main

# Give your commits to all agents of a run.
muster push --label run=42

# To all agents. Those without a branch, such as copies, are reported; the others get them.
muster push --all --merge

# =====================================================================
# 9. Snapshots and clones
# =====================================================================

# Keep the state of a work dir, under a name.
muster snapshot create greet before-cleaning

# Without a name it is the time.
muster snapshot create greet

# What was kept?
muster snapshot list greet

# Go back. What is there now is kept as a snapshot first.
muster snapshot restore greet before-cleaning

# Drop one.
muster snapshot delete greet before-cleaning

# Try the other way: a second agent with the same work and the same conversation.
muster clone greet greet-b

# Without a name one is made up. The copy gets a message and a label of its own.
muster clone greet --label try=other --message "Now say it in French"

# =====================================================================
# 10. Names, labels, stopping and going on
# =====================================================================

# Give an agent another name. It may be at work meanwhile.
muster rename greet-b hello-b

# Set labels.
muster label hello-b --set owner=me --set run=43

# See the labels of all agents.
muster label --all

# Change the labels of all agents that have one.
muster label --label run=43 --set run=44 --remove owner

# Stop an agent; it has 30 seconds to end by itself.
muster stop hello-b --grace 30s

# Go on with it: same work dir, same conversation.
muster start hello-b

# Stop all agents of a run. An agent that has ended already is no error.
muster stop --label run=44

# Start them again.
muster start --label run=44

# The evening: stop everything. The morning: go on with everything.
muster stop --all --grace 2s
muster start --all

# Names from another program: - reads them from stdin.
muster list --state lost --format '{address}' | muster start -

# =====================================================================
# 11. Removing, and bringing back
# =====================================================================

# Remove one agent. You are told what it had that is nowhere else.
muster destroy hello-b

# Bring it back: record, work dir, branch, transcript and recording. It does not run then.
muster restore hello-b

# What is in the trash?
muster destroy hello-b
muster restore --list

# The name is in use again: bring it back under another one.
muster create hello-b command --no-connect -- sleep 60
muster restore hello-b --as hello-old

# The screen of a destroyed agent can still be read.
muster destroy hello-old
muster capture hello-old

# Remove many by a pattern.
muster destroy 'try-*'

# Remove all agents of a run.
muster destroy --label run=42

# What is left over, and is any of it unique? Nothing is removed yet.
muster gc

# Remove it. What is unique goes to the trash first.
muster gc --yes

# Free space: also drop trash that is older than a week.
muster gc --older 7d --yes

# =====================================================================
# 12. Recording and replaying
# =====================================================================

# Write a playbook from what an agent really did.
muster record greet

# Into a file. An existing one is overwritten only with --force.
muster record greet --output ../again.toml
muster record greet -o ../again.toml --force

# Do it again, for free.
muster create again replay --no-connect -- ../again.toml

# =====================================================================
# 13. Other hosts
# =====================================================================

# Run an agent on another machine: @ and its name in your ~/.ssh/config. It needs only a shell, git and tmux.
muster create fix-login@box claude --no-connect -m "Fix it there"

# A made-up name, on that host.
muster create @box command --no-connect -- uname -a

# Every verb takes the same address.
muster create there@box command --no-connect -- sh -c 'echo "done on $(uname -n)"'
muster wait there@box
muster capture there@box

# Commits come back as from a local agent.
muster pull there@box

# Patterns see the whole address: everybody on that host.
muster stop '*@box'

# Move the work of a local agent to a host, conversation included.
muster clone greet greet-far@box

# Only the agents of one host.
muster list --host box

# A provider makes a new host for the agent, and a name for it. Here `sub` is a program muster-provider-sub on the PATH, see docs/plugins.md.
muster create greet@.sub command -- sleep 600

# Stop the host that was made, and start it again: its files stay. Then destroy it, with --force even if it has agents.
muster hosts stop brave-otter.sub
muster hosts start brave-otter.sub
muster hosts destroy brave-otter.sub --force

# Which hosts were used, do they answer, and when did they last?
muster hosts
muster hosts list

# Leave a host out of the list. Nothing on it changes.
muster hosts forget box

# Give a host a short name, and a folder for muster's files there.
muster config set hosts.big.destination me@big.example.com
muster config set hosts.big.home /scratch/me/muster

# =====================================================================
# 14. Configuration
# =====================================================================

# Where are the files? Yours, and the project's if it has one.
muster config path

# What is in force? This also checks every key.
muster config
muster config show

# A default for any option of any verb: [commands.VERB] option = value.
muster config set commands.create.mode worktree

# Read one key.
muster config get commands.create.mode

# For everybody who works on this project: the same, in .muster/config.toml.
muster config set commands.create.label '["team=shop"]' --project

# A flag beats a MUSTER_VERB_OPTION variable, that beats the project's file, that beats yours.
MUSTER_CREATE_MODE=mirror muster create by-variable command --no-connect -- true
MUSTER_CREATE_MODE=mirror muster create by-flag command --mode copy --no-connect -- true

# Run a command of yours after every create instead of attaching.
muster config set commands.create.connect_command 'echo "made $MUSTER_ADDRESS"'
muster create announced command -- sleep 60

# Be told when an agent waits for you, is ready or has failed. The agent is in the command's environment; docs/notify.md has all variables.
muster config set notify.command 'notify-send "$MUSTER_AGENT is $MUSTER_NOTIFY_STATE" "$MUSTER_NOTIFY_TEXT"'
muster create nosy replay --no-connect -- ../ask.toml

# Choose which states you want to hear of. Agents take it with their next start.
muster config set notify.on '["waiting", "failed", "done"]'

# A set of create options under a name. `args` is what would stand behind --.
mkdir -p "${XDG_CONFIG_HOME:-$HOME/.config}/muster"
cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[templates.check]
type = "command"
label = { kind = "check" }
timeout = "10m"
args = ["git", "fsck"]
END
muster create checked --template check --no-connect

# A type of your own: the program, how it takes the first message, and whether it tells of its turns.
cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[types.shout]
argv = ["sh", "-c", "echo \"$MUSTER_PROMPT\" | tr a-z A-Z"]
prompt = "environment"
END
muster create loud shout --no-connect -m "hello"

# A type whose terminal tells: by the look of its last line muster knows that it asks or that it is ready. docs/agent-types.md has
# all that a type can say.
cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[types.python]
argv = ["python3", "-i", "-q"]
prompt = "typed"
shows = { ready = "^>>> *$", waiting = "\\? *$" }
END
muster create calc python --no-connect
muster wait calc --until ready
muster message calc -m 'input("Which colour? ")'
muster wait calc --until waiting

# A price of your own, in dollars for a million tokens: of a model that the price library does not know, or that you get for less.
cat >> "${XDG_CONFIG_HOME:-$HOME/.config}/muster/config.toml" <<'END'
[prices."our-model-1.5"]
input = 3.0
output = 15.0
cache_read = 0.3
cache_write = 3.75
END
muster list --format '{name} {cost_usd}'

# Or key by key. A name with a dot in it stands in quotes.
muster config set 'prices."our-model-1.5".input' 2.5
muster config get 'prices."our-model-1.5".input'

# Files that git does not have, shared caches, and a command that prepares each work dir.
echo "DB_NAME=shop" > .env
mkdir -p cache
cat >> .muster/config.toml <<'END'
[workdir]
copy = [".env"]
link = ["cache"]
setup = "echo prepared > .prepared"
END

# A project's file may run commands only after you trusted it. See what is left out until then.
muster trust --show

# Trust the file as it is now. When it changes, it has to be trusted again.
muster trust
muster create prepared command --no-connect -- cat .env .prepared

# Trust it no longer.
muster trust --remove

# =====================================================================
# 15. Your shell and your system
# =====================================================================

# Complete verbs, options and the names of agents with Tab.
eval "$(muster completion bash)"

# The same for zsh and for fish.
mkdir -p ~/.zfunc ~/.config/fish/completions
muster completion zsh > ~/.zfunc/_muster
muster completion fish > ~/.config/fish/completions/muster.fish

# Read a manual page.
muster man create

# Get its source, or write all pages into a folder.
muster man create --roff > ../muster-create.1
muster man --all ~/.local/share/man/man1

# A verb of your own: a program called muster-NAME on your PATH.
mkdir -p ~/bin
printf '%s\n' '#!/bin/sh' 'muster list --state waiting --format "{name}"' > ~/bin/muster-waiting
chmod +x ~/bin/muster-waiting
PATH=~/bin:$PATH muster waiting

# No colours. Without a terminal there are none anyway.
NO_COLOR=1 muster list

# A second fleet, apart from the first: MUSTER_HOME is where all of muster's state is.
MUSTER_HOME=~/other-fleet muster list

# =====================================================================
# 16. A tutorial and its tests
# =====================================================================

# What can be done with a tutorial such as this one?
muster tutorial --help

# A tutorial is a script in blocks: a comment that says what you want, and what to type. Comments alone are headings, to be filled.
mkdir -p ../shop/tests
cat > ../shop/tutorial.sh <<'END'
#!/bin/bash
# A shop, by example.

# ===== Orders =====

# Say hello.
echo hello

# Count three things.
seq 3

# Sending things back
END

# See its blocks: the line and the id of each, its comment and its commands.
muster tutorial list ../shop/tutorial.sh

# Only the blocks of one section.
muster tutorial list ../shop/tutorial.sh --section orders

# Which headings are still to be filled?
muster tutorial list ../shop/tutorial.sh --kind heading

# A test says which block it is about by citing it. Which blocks have no test yet? Exit code 1 means that something was found.
cat > ../shop/tests/test_hello.py <<'END'
from muster.tutorial import E2eSession, expect


def test_hello_is_said(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Say hello.
    echo hello
    """)
    expect(e2e.run("echo hello").stdout).to_contain("hello")
END
muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests || echo "something was found: $?"

# A citation in a docstring counts too. In the project itself, the tutorial and the tests are found without being named.
cat > ../shop/tests/test_count.py <<'END'
def test_three_things_are_counted(e2e):
    """
    # Count three things.
    seq 3
    """
    assert e2e.run("seq 3").stdout == "1\n2\n3\n"
END
(cd ../shop && muster tutorial check)

# The transcripts of the tests tell which commands of a block no test ran. These are warnings; with --strict they fail the check.
mkdir -p ../shop/.muster/e2e
muster tutorial check --tutorial ../shop/tutorial.sh --artifacts ../shop/.muster/e2e --strict ../shop/tests

# Run the tests. Transcripts and recordings of terminals go to .muster/e2e, or to a folder of your choice.
(cd ../shop && pytest -q --e2e-artifacts ../shop-run)

# Make the page that shows them: each block beside its tests, transcripts in colour, recordings to play. It opens without a network.
muster report ../shop-run

# Make it elsewhere, to put on a web server, and look at it in the browser if there is one.
muster report ../shop-run --out ../shop-page --open

# How many passed, as data; and all that report can do.
muster report ../shop-run --json --verbose
muster report --help

# Examples are tiring to write. Write headings instead, and have an agent fill them in. Here is a small project, and a playbook that stands in for a client.
mkdir -p ../cafe/tests
cat > ../cafe/tutorial.sh <<'END'
#!/bin/bash

# Say hello.
echo hello

# Counting things
END
cat > ../cafe.toml <<'END'
[[step]]
expect = "Counting things"
[[step]]
write = "tutorial.sh"
text = '''
#!/bin/bash

# Say hello.
echo hello

# Counting things

# Count three things.
seq 3

# Count backwards.
seq --backwards 3
'''
[[step]]
commit = "Examples"
[[step]]
turn = "Done."
END
git init -q ../cafe && git -C ../cafe add -A && git -C ../cafe commit -q -m first

# The agent writes on a branch of its own, and every example is run there. What fails tells you where your program confuses.
muster tutorial fill ../cafe/tutorial.sh --agent replay --name waiter --heading counting --timeout 5m -- ../cafe.toml

# Keep the ones that work: they are committed on the agent's branch, and your own tree stays as it is until you pull.
muster tutorial fill ../cafe/tutorial.sh --from waiter --accept passing
muster pull waiter --merge

# What else was proposed, as data: the text, the exit code, the output, and what was found.
muster tutorial fill ../cafe/tutorial.sh --from waiter --json --verbose

# The tests can be written by an agent too. muster judges what it commits, runs it, and sends back what is left: blocks without a test, stale citations, no unhappy path, tests that fail.
cat > ../cafe-tests.toml <<'END'
[[step]]
expect = "muster tutorial check --tutorial tutorial.sh tests"
[[step]]
write = "tests/test_cafe.py"
text = '''
from muster.tutorial import E2eSession, expect


def test_hello_is_said(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Say hello.
    echo hello
    """)
    # no unhappy path: it only prints
    expect(e2e.run("echo hello").stdout).to_contain("hello")


def test_three_things_are_counted(e2e: E2eSession) -> None:
    e2e.write_tutorial_block("""
    # Count three things.
    seq 3
    """)
    expect(e2e.run("seq 3").stdout).to_contain("3")
    expect(e2e.run("seq three")).to_fail()
'''
[[step]]
commit = "Tests"
[[step]]
turn = "Done."
END
muster tutorial sync --tutorial ../cafe/tutorial.sh --agent replay --name tester --rounds 2 --timeout 5m --pytest 'python -m pytest' ../cafe/tests -- ../cafe-tests.toml

# Bring the tests home. Then all is in step, and another sync has nothing to do.
muster pull tester --merge
muster tutorial sync --tutorial ../cafe/tutorial.sh ../cafe/tests --json --verbose

# Your client can do this from inside: install it as the slash command sync-tutorial-to-e2e-tests, for claude and, in AGENTS.md, for all others.
muster tutorial skill --dir ../cafe

# Read the instructions first.
muster tutorial skill claude --print

# For other clients, in place of what is there.
muster tutorial skill opencode codex agents --dir ../cafe --force --json --verbose

# All that these three can do.
muster tutorial fill --help
muster tutorial sync --help
muster tutorial skill --help

# =====================================================================
# 17. Scripts
# =====================================================================

# Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 time is up, 5 refused to protect work, 6 host unreachable, 7 a dialog is open.
muster explain no-such-agent || echo "exit code $?"

# Make an agent, wait for it, act on how it ended.
muster create build command --no-connect -- sh -c 'test -f README'
if muster wait build --until done --timeout 5m; then muster pull build; else muster capture build; fi

# Over many agents muster goes on past a failure, reports each, and exits with the worst code.
muster stop greet no-such-agent || echo "one of them failed: $?"

# Nobody is named on stdin: nothing to do, and no error.
muster list --label run=none --format '{address}' | muster destroy -

# Every verb has --json: one document on stdout, described in docs/json.md. Here all that is known of all agents.
muster list --json

# In a log you want the inner details of errors too. --verbose puts them on stderr; the document stays whole.
muster list --verbose --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["agents"]), "agents")'

# With --watch there is one JSON object a line, for each change.
muster list --watch --json

# An error is a document too: {"error": {"message", "hint", "code"}}.
muster explain no-such-agent --json --verbose || true

# The record of what was made: "agents".
muster create made command --json --verbose -- sleep 60

# Verbs over many agents answer with "results", one for each; "ok" says how it went.
muster message made -m "hi" --json --verbose

# What became of an answer: "result" is answered, delivered or queued.
muster create asker replay --no-connect -- ../ask.toml
muster wait asker --until waiting --timeout 60s
muster answer asker yes --json --verbose

# The agents as they were when the wait was over.
muster wait made --until working --timeout 30s --json --verbose

# connect shows a terminal and has no document. It says so, as a document, with exit code 2.
muster connect made --json --verbose || true

# The screen as text, and whether it is live, kept or from the recording.
muster capture made --json --verbose

# A command's exit code and output.
muster exec made --json --verbose -- git rev-parse HEAD

# The conversation, entry by entry.
muster transcript greet --last 1 --json --verbose

# The events, each with its time "t" and its "kind".
muster events made --json --verbose

# The branch, its tip, and how many commits it is ahead.
muster pull made --json --verbose

# The commit the agent is at after a push.
muster push made --json --verbose

# The names of the files, and the diff.
muster diff greet --json --verbose

# The snapshots of an agent.
muster snapshot list greet --json --verbose

# The state before and after a stop.
muster stop made --grace 0 --json --verbose

# "started" is false when it was running already.
muster start made --json --verbose

# A clone answers as create does.
muster clone made made-b --json --verbose

# The new name and the old one.
muster rename made-b made-c --json --verbose

# The labels an agent has now.
muster label made-c --set seen=yes --json --verbose

# What was kept, for how many days, and the id to restore it by.
muster destroy made-c --json --verbose

# The name and the state of what came back.
muster restore made-c --json --verbose

# What is left over, and what it is.
muster gc --json --verbose

# The steps of a playbook.
muster record greet --json --verbose

# The blocks of a tutorial, and what is wrong between it and its tests.
muster tutorial list ../shop/tutorial.sh --json --verbose
muster tutorial check --tutorial ../shop/tutorial.sh ../shop/tests --json --verbose

# All that is configured.
muster config --json --verbose

# The project's file, whether it is trusted, and what is left out.
muster trust --show --json --verbose

# The hosts, whether they answer, and how many agents they have.
muster hosts --json --verbose

# What each host has and lacks.
muster doctor --json --verbose

# A completion script or a manual page, inside a document.
muster completion bash --json --verbose
muster man list --json --verbose

# =====================================================================
# 18. One agent for each item
# =====================================================================

# One agent for each line of the input, as many at once as the machine allows. {item} is the line. A plain command's exit is its result.
printf 'alpha\nbeta\n' | muster map --run first -a command -- sh -c 'echo "hello {item}" > {item}.txt; git add .; git commit -q -m "Add {item}"'

# What became of each task: its outcome, its branch, and why. A run is a directory, and all that is known of it is a file there.
muster runs
muster runs show first
git log --oneline -1 muster/first-0001

# One task, by its id or its number: why it came out so, its attempts, what its agent said last, and what to type next.
printf 'good\nbad\n' | muster map --run two -a command --retries 1 -- sh -c 'echo "it was {item}"; test {item} = good'
muster runs show two 2

# The same command again goes on with a run that is not finished. This one is: it says so, and does nothing twice.
seq 2 | muster map --run twice --agent command --prompt 'Look at {item}.' -- sh -c 'echo "$MUSTER_PROMPT"'
seq 2 | muster map --run twice --agent command --prompt 'Look at {item}.' -- sh -c 'echo "$MUSTER_PROMPT"'

# See what would be done, and do nothing.
seq 5 | muster map -a command --dry-run -- echo '{item}'

# Items as JSON Lines from a file: the fields of each object are slots too.
printf '%s\n' '{"file": "a.txt", "word": "one"}' '{"file": "b.txt", "word": "two"}' > ../words.jsonl
muster map --run words -a command --items ../words.jsonl -- sh -c 'echo {word} > {file}'

# A client gets a prompt, and submits a result. No person is there to ask, so it needs --permissions bypass or policy.
ls README | muster map --run talk -a replay -p 'Look at {item}.' -- ../submits.toml

# The prompt from a file, other agents at other work, and all that may hold a run back.
echo 'Look at {item}.' > ../prompt.md
seq 2 | muster map --run held -a replay --prompt-file ../prompt.md --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --permissions ask --mode worktree --branch HEAD --clean --label kind=look --keep -- ../submits.toml
muster destroy -l kind=look

# Budgets for every run are configured, for one run, one agent or all runs of a day. Over one of them means stopped and harvested.
muster config set budget.day_dollars 20
muster config set budget.agent_dollars 2
muster config set budget.time 2h
ls README | muster map --run frugal -a replay -p 'Look at {item}.' -- ../submits.toml

# What there was no budget for is taken up by the same command when there is: nothing is done twice. What was stopped is, too.
muster config set budget.agents 1
seq 2 | muster map --run poor -a command -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"' || echo "one is left"
muster config set budget.agents 100
seq 2 | muster map --run poor -a command -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'

# What an agent that asks is told, when nobody is there: answer tells it so, once; escalate tells you, and it waits; stop ends it.
ls README | muster map --run asking -a replay --questions escalate -p 'Look at {item}.' -- ../asks.toml &
until muster list 2>&1 | grep -q waiting; do sleep 0.2; done
muster answer asking-0001 'The first one.'
wait

# On other machines: the agents are spread over them, and their branches come home.
seq 2 | muster map --run far -a command @box -- sh -c 'echo {item} > f; git add f; git commit -q -m "{item}"'
git log --oneline -1 muster/far-0002

# Once more from the start, although a run of this input is not finished. Events as JSON Lines, for programs.
seq 2 | muster map -a command --new --json --verbose -- true

# All runs, or one of them, for programs.
muster runs --json --verbose
muster runs show first --json --verbose

# Ask something of a run that is under way: launch no more for now, go on, with fewer at once, or stop. Its agents are harvested first.
seq 3 | muster map --run long -a command --max-agents 1 -- sh -c 'sleep 600' &
until muster runs show long 2>&1 | grep -q running; do sleep 0.2; done
muster runs pause long
muster runs resume long
muster runs set long max_agents=2
muster runs stop long
wait

# Remove the directory of a run. Branches stay.
muster runs rm long

# =====================================================================
# 19. A better test suite
# =====================================================================

# In a repository with pytest: run all tests without agents first, and say who would get one. The playbooks stand in for a coding client's work.
muster improve -a replay --playbooks ../plays --dry-run

# One agent for each test; what they did is verified in a clean checkout, and what holds becomes one branch. Your own work tree stays as it is.
muster improve -a replay --playbooks ../plays --run mend
git log --oneline main..muster-run/mend

# What became of each test: claimed and verified, how many came how far, and what was left out and why.
muster runs show mend

# A page of the run: claims beside what was verified, every transcript, recording and diff. Made while the run goes on, it is kept up to date.
muster report mend

# Some tests only, once more although they are done, believed after two runs; and all that may hold the agents back.
muster improve test_calc.py --agent replay --playbooks ../plays --tutorial tutorial.sh --all --times 2 --max-agents 4 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 2 --questions stop --permissions ask --integrator none --rank code --run again --new --keep -- -q

# How the tests are called, a linter that every batch must please, and paths that no agent may change.
muster config set improve.pytest '["python3", "-m", "pytest", "-q"]'
muster config set improve.lint '["python3", "-m", "compileall", "-q", "calc.py"]'
muster config set improve.protected '["vendor/**"]'

# Make the branch again, when somebody has talked to an agent that was stuck and it has submitted since. Without an integrator, what conflicts is left out.
muster reduce mend --integrator none

# Any agents and branches become one branch in the same way; with no test of their own, they are judged by what they do to all tests.
muster create helper command --no-connect -- sh -c 'sed -i "s/a - b/a + b/" calc.py; git commit -qam "Add instead of subtracting"'
muster wait helper
git branch idea
muster reduce helper idea --run mine -- -q
git log --oneline main..muster-run/mine

# What the agents of a map committed becomes one branch in the same way. The gate is any command: a change with which it does not exit with 0, in a clean checkout, is left out.
seq 0 2 | muster map --run scripts -a command -- sh -c 'echo "exit {item}" > {item}.sh; git add .; git commit -q -m "Add script {item}"'
muster reduce scripts --gate '! grep "exit 1" *.sh'
git log --format=%s --reverse main..muster-run/scripts

# The gate that a project always uses is configured. Without one, all changes that fit together are delivered.
muster config set reduce.gate 'make test'
muster reduce scripts --gate none

# All that reduce can be told. --pr pushes the branch and opens a pull request with your own gh; no agent can.
muster reduce mend --playbooks ../plays --times 1 --max-agents 2 --budget 5 --budget-tokens 100000 --timeout 5m --stall 10m --retries 1 --questions answer --permissions ask --rank agent --integrator replay --pr

# The same in one go: improve, push the branch, and open a pull request.
muster improve -a replay --playbooks ../plays --run mend --pr

# What agents want somebody to know, counted over all runs, until it is closed.
muster runs escalations
muster runs close "$(muster runs escalations --json | grep -o '"id": "[^"]*"' | cut -d '"' -f 4)"

# For programs: events as JSON Lines, and the delivery as the last of them.
muster improve -a replay --playbooks ../plays --run mend --json --verbose
muster reduce mend --integrator none --json --verbose

# =====================================================================
# 20. Where to look for more
# =====================================================================

# Agents: making them, looking at them, talking to them.
muster create --help
muster list --help
muster message --help
muster answer --help
muster wait --help
muster connect --help
muster capture --help
muster exec --help
muster transcript --help
muster events --help
muster explain --help

# Their work: bringing it home, giving them yours.
muster pull --help
muster push --help
muster diff --help
muster snapshot --help

# Their life: stopping, going on, leaving.
muster stop --help
muster start --help
muster clone --help
muster rename --help
muster label --help
muster destroy --help
muster restore --help
muster gc --help
muster record --help

# Runs: one agent for each item.
muster map --help
muster improve --help
muster reduce --help
muster runs --help

# Tutorials: their blocks and their tests.
muster tutorial list --help
muster tutorial check --help

# muster itself.
muster config --help
muster trust --help
muster hosts --help
muster doctor --help
muster completion --help
muster man --help

# Remove all agents. Everything is in the trash, and `muster restore` brings it back.
muster destroy --all
