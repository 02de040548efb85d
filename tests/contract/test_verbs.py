"""One suite for every kind of host: the verbs do the same wherever an agent lives."""

from __future__ import annotations

import json
import subprocess
import sys

from ..conftest import eventually
from .conftest import Place

QUESTION = """
[[step]]
say = "Looking around."
input_tokens = 100
output_tokens = 20

[[step]]
write = "found.txt"
text = "it was here\\n"

[[step]]
ask = "Shall I commit it?"

[[step]]
expect = "please"

[[step]]
commit = "Found it"

[[step]]
submit = "ok"
summary = "found"
"""
WAITS = """
wait_for_message = true
[[step]]
say = "got {message}"
"""


def start_command(place: Place, name: str, *argv: str) -> None:
    place.world.ok("create", place.at(name), "command", "--no-connect", "--", *argv)


def start_replay(place: Place, name: str, book: str) -> None:
    place.world.ok("create", place.at(name), "replay", "--no-connect", "--", place.world.playbook(book, f"{name}.toml"))


def test_a_created_agent_works_on_its_own_branch_with_its_own_files(place: Place) -> None:
    world = place.world
    (world.repo / "README").write_text("changed, not committed\n")
    (world.repo / "new file").write_text("untracked\n")
    start_command(place, "one", "sleep", "1000")
    row = world.wait_state(place.at("one"), "working")
    assert row["branch"] == "muster/one"
    assert row["repo"] == str(world.repo)
    assert world.ok("exec", place.at("one"), "--", "cat", "README").stdout == "changed, not committed\n"
    assert world.ok("exec", place.at("one"), "--", "cat", "new file").stdout == "untracked\n"
    assert world.ok("exec", place.at("one"), "--", "git", "branch", "--show-current").stdout == "muster/one\n"
    # What I had not committed is not the agent's doing.
    assert world.ok("diff", place.at("one")).stdout == ""
    world.ok("exec", place.at("one"), "--", "sh", "-c", "echo more >> README")
    assert "-changed" not in world.ok("diff", place.at("one")).stdout
    assert "+more" in world.ok("diff", place.at("one")).stdout
    # What is mine stays mine.
    assert world.git("branch", "--show-current") == "main"
    assert world.git("status", "--porcelain").split("\n") == [" M README", '?? "new file"']


def test_a_repository_inside_mine_that_stays_behind_is_named(place: Place) -> None:
    world = place.world
    world.make_repo(world.repo / "inner")
    told = world.ok("create", place.at("one"), "command", "--no-connect", "--", "true").stderr
    assert "left out: inner/" in told
    assert (world.repo / "inner" / "README").exists()


def test_exec_passes_arguments_stdin_and_the_exit_code_whole(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sleep", "1000")
    words = ["a b", "c'd", 'e"f', "$HOME", "`x`", "new\nline", "ü☃", "*", "\\", ""]
    told = world.ok("exec", place.at("one"), "--", "printf", "<%s>", *words).stdout
    assert told == "".join(f"<{word}>" for word in words)
    data = bytes(range(256)) * 40
    result = world.run("exec", place.at("one"), "--", "sha256sum", input=data)
    import hashlib

    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert world.run("exec", place.at("one"), "--", "sh", "-c", "exit 42").code == 42


def test_exec_works_in_the_work_dir_of_an_agent_that_has_ended(place: Place) -> None:
    start_command(place, "one", "true")
    place.world.wait_state(place.at("one"), "done")
    assert place.world.ok("exec", place.at("one"), "--", "cat", "README").stdout == "hello\n"


def test_a_process_that_ends_is_done_or_failed_with_its_code(place: Place) -> None:
    start_command(place, "good", "true")
    start_command(place, "bad", "sh", "-c", "exit 3")
    start_command(place, "hit", "sh", "-c", "kill -9 $$")
    start_command(place, "said", "echo", "the last word")
    assert place.world.wait_state(place.at("said"), "done", "failed")["last_line"] == "the last word"
    assert place.world.wait_state(place.at("good"), "done", "failed")["exit_code"] == 0
    bad = place.world.wait_state(place.at("bad"), "done", "failed")
    assert (bad["state"], bad["reason"], bad["exit_code"]) == ("failed", "exit 3", 3)
    hit = place.world.wait_state(place.at("hit"), "done", "failed")
    assert (hit["state"], hit["reason"], hit["exit_code"]) == ("failed", "signal 9", 137)


def test_stop_ends_every_process_even_a_daemon_and_start_goes_on(place: Place) -> None:
    world = place.world
    start_command(
        place,
        "one",
        "sh",
        "-c",
        "setsid sleep 1000 & setsid nohup sh -c 'trap \"\" TERM; sleep 1000; :' & echo up; sleep 1000",
    )
    row = world.wait_state(place.at("one"), "working")
    eventually(lambda: len(world.processes(row["id"])) >= 5)
    world.ok("stop", place.at("one"), "--grace", "1s")
    assert world.state(place.at("one")) == "stopped"
    assert world.processes(row["id"]) == []
    world.ok("start", place.at("one"))
    world.wait_state(place.at("one"), "working")
    again = world.ok("start", place.at("one"))
    assert "is already running" in again.stderr


def test_destroy_keeps_everything_and_restore_brings_it_back(place: Place) -> None:
    world = place.world
    script = "echo done > made; git add made; git commit -qm work; echo half > half; git add half; echo more >> half; echo new > new; sleep 1000"
    start_command(place, "one", "sh", "-c", script)
    eventually(lambda: world.run("exec", place.at("one"), "--", "cat", "new").stdout == "new\n")
    before = world.ok("exec", place.at("one"), "--", "git", "status", "--porcelain=v2", "--branch").stdout
    head = world.ok("exec", place.at("one"), "--", "git", "rev-parse", "HEAD").stdout
    told = world.ok("destroy", place.at("one")).stderr
    assert "1 commit" in told and "uncommitted" in told
    assert place.at("one") not in world.agents()
    world.ok("restore", place.at("one"))
    assert world.ok("gc", "--json").json["leftovers"] == []
    assert world.state(place.at("one")) == "stopped"
    assert world.ok("exec", place.at("one"), "--", "git", "status", "--porcelain=v2", "--branch").stdout == before
    assert world.ok("exec", place.at("one"), "--", "git", "rev-parse", "HEAD").stdout == head
    assert world.ok("exec", place.at("one"), "--", "cat", "half", "new").stdout == "half\nmore\nnew\n"
    world.ok("start", place.at("one"))
    world.wait_state(place.at("one"), "working")


def test_a_conversation_with_a_question_an_answer_and_a_result(place: Place) -> None:
    world = place.world
    start_replay(place, "talk", QUESTION)
    row = world.wait_state(place.at("talk"), "waiting")
    assert row["reason"] == "question"
    assert row["tokens"] and row["tokens"] >= 120
    told = world.ok("answer", place.at("talk"), "yes please").stderr
    assert "delivered" in told
    world.ok("wait", place.at("talk"), "--until", "ready", "--timeout", "30s")
    entries = world.ok("transcript", place.at("talk"), "--json").json["entries"]
    assert [entry["text"] for entry in entries if entry["role"] == "user"] == ["yes please"]
    assert world.ok("exec", place.at("talk"), "--", "git", "log", "-1", "--format=%s").stdout == "Found it\n"
    kinds = [event["kind"] for event in world.ok("events", place.at("talk"), "--json").json["events"]]
    assert kinds[0] == "started" and "ask" in kinds and kinds[-1] == "turn-end"
    assert "waiting" in {row["state"] for row in world.ok("explain", place.at("talk"), "--json").json["evidence"]}


def test_a_message_arrives_whole_and_once(place: Place) -> None:
    world = place.world
    start_replay(place, "ear", WAITS)
    text = "line one\n\tline 'two' \"three\" $HOME `id` \\ end ☃\n\nlast"
    told = world.ok("message", place.at("ear"), "-m", text).stderr
    assert "delivered" in told
    entries = world.ok("transcript", place.at("ear"), "--json").json["entries"]
    assert [entry["text"] for entry in entries if entry["role"] == "user"] == [text]


def test_a_plain_command_is_typed_to_and_never_claimed_delivered(place: Place) -> None:
    world = place.world
    start_command(place, "cat", "sh", "-c", 'read line; echo "got <$line>"; sleep 1000')
    world.wait_state(place.at("cat"), "working")
    row = world.ok("message", place.at("cat"), "-m", "hello there", "--json").json["results"][0]
    assert row["result"] == "typed"
    eventually(lambda: "got <hello there>" in world.ok("capture", place.at("cat")).stdout)


def test_the_screen_stays_readable_after_stop_and_after_destroy(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sh", "-c", "echo remember me; sleep 1000")
    eventually(lambda: "remember me" in world.run("capture", place.at("one")).stdout)
    world.ok("stop", place.at("one"))
    assert "remember me" in world.ok("capture", place.at("one")).stdout
    world.ok("destroy", place.at("one"))
    assert "remember me" in world.ok("capture", place.at("one")).stdout


def test_the_recording_has_all_launches_from_the_first_byte(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sh", "-c", "echo first byte; sleep 1000")
    eventually(lambda: "first byte" in world.run("capture", place.at("one")).stdout)
    world.ok("stop", place.at("one"))
    world.ok("start", place.at("one"))
    eventually(lambda: "first byte" in world.run("capture", place.at("one")).stdout)
    world.ok("stop", place.at("one"))
    lines = world.ok("capture", place.at("one"), "--cast", "-").stdout.splitlines()
    head = json.loads(lines[0])
    assert head["version"] == 2 and head["width"] == 200 and head["height"] == 50
    text = "".join(event[2] for event in map(json.loads, lines[1:]) if event[1] == "o")
    assert text.count("first byte") == 2


#: Runs a command, and prints its exit code and the most memory (KB) that it or a process of its took.
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_large_recording_is_never_in_memory_as_a_whole(place: Place) -> None:
    world, taken = place.world, {}
    for name, size in (("small", 1), ("large", 40 << 20)):
        start_command(
            place, name, "sh", "-c", f"yes 'a line of some length, and another one of the same' | head -c {size}"
        )
        world.wait_state(place.at(name), "done")
        argv = [sys.executable, "-c", MEASURED, str(world.bin / "muster"), "capture", place.at(name), "--cast", "-"]
        done = subprocess.run(argv, cwd=world.repo, env=world.env, capture_output=True, text=True, check=True)
        code, taken[name] = map(int, done.stdout.split())
        assert code == 0, done.stderr
    assert taken["large"] < taken["small"] + (15 << 10)


def test_pull_brings_commits_and_touches_nothing_that_is_checked_out(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sh", "-c", "echo two > src/app.py; git commit -qam second")
    world.wait_state(place.at("one"), "done")
    world.ok("pull", place.at("one"), cwd=world.folder)
    assert world.git("log", "-1", "--format=%s", "muster/one") == "second"
    assert world.git("log", "-1", "--format=%s") == "first"
    assert (world.repo / "src/app.py").read_text() == "print('one')\n"
    world.ok("pull", place.at("one"), "--merge")
    assert (world.repo / "src/app.py").read_text() == "two\n"
    assert world.git("status", "--porcelain") == ""


def test_pull_files_brings_artifacts_and_follows_no_link(place: Place) -> None:
    world = place.world
    make = "mkdir -p out/sub; echo a > 'out/a b.txt'; echo c > out/sub/c.txt; ln -s /etc/passwd out/link; ln -s /etc out/dir"
    start_command(place, "one", "sh", "-c", make)
    world.wait_state(place.at("one"), "done")
    world.ok("pull", place.at("one"), "--files", "out", "--to", str(world.folder / "got"))
    found = sorted(
        str(path.relative_to(world.folder / "got")) for path in (world.folder / "got").rglob("*") if path.is_file()
    )
    assert found == ["out/a b.txt", "out/sub/c.txt"]
    world.fails(3, "pull", place.at("one"), "--files", "nothing*")


def test_push_brings_my_commits_and_refuses_to_overwrite(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sleep", "1000")
    world.wait_state(place.at("one"), "working")
    (world.repo / "README").write_text("from me\n")
    world.git("commit", "-qam", "mine")
    world.ok("push", place.at("one"))
    assert world.ok("exec", place.at("one"), "--", "cat", "README").stdout == "from me\n"
    world.ok("exec", place.at("one"), "--", "sh", "-c", "echo theirs > README")
    (world.repo / "README").write_text("mine again\n")
    world.git("commit", "-qam", "mine again")
    refused = world.fails(5, "push", place.at("one"))
    assert "README" in refused.stderr
    assert world.ok("exec", place.at("one"), "--", "cat", "README").stdout == "theirs\n"


def test_diff_shows_commits_and_uncommitted_and_new_files(place: Place) -> None:
    world = place.world
    start_command(
        place, "one", "sh", "-c", "echo c > committed; git add .; git commit -qm c; echo u > untracked; rm README"
    )
    world.wait_state(place.at("one"), "done")
    names = world.ok("diff", place.at("one"), "--name-only").stdout.split()
    assert names == ["README", "committed", "untracked"]
    assert world.ok("diff", place.at("one"), "--name-only", "--committed").stdout.split() == ["committed"]
    row = {r["address"]: r for r in world.ok("list", "--git", "--json").json["agents"]}[place.at("one")]
    assert (row["ahead"], row["dirty"]) == (1, 2)


def test_clone_carries_work_uncommitted_state_and_conversation(place: Place) -> None:
    world = place.world
    start_replay(place, "talk", QUESTION)
    world.wait_state(place.at("talk"), "waiting")
    world.ok("clone", place.at("talk"), place.at("twin"))
    world.wait_state(place.at("twin"), "waiting")
    assert world.ok("exec", place.at("twin"), "--", "cat", "found.txt").stdout == "it was here\n"
    said = [
        e["text"]
        for e in world.ok("transcript", place.at("twin"), "--json").json["entries"]
        if e["role"] == "assistant"
    ]
    assert "Looking around." in said
    world.ok("answer", place.at("twin"), "yes please")
    world.ok("wait", place.at("twin"), "--until", "ready", "--timeout", "30s")
    assert world.ok("exec", place.at("twin"), "--", "git", "log", "-1", "--format=%s").stdout == "Found it\n"
    # The first one has not moved.
    assert world.state(place.at("talk")) == "waiting"


def test_a_resumed_conversation_goes_on_where_it_was(place: Place) -> None:
    world = place.world
    start_replay(place, "talk", QUESTION)
    world.wait_state(place.at("talk"), "waiting")
    world.ok("stop", place.at("talk"))
    world.ok("start", place.at("talk"))
    world.wait_state(place.at("talk"), "waiting")
    world.ok("answer", place.at("talk"), "please do")
    world.ok("wait", place.at("talk"), "--until", "ready", "--timeout", "30s")
    said = [
        e["text"]
        for e in world.ok("transcript", place.at("talk"), "--json").json["entries"]
        if e["role"] == "assistant"
    ]
    assert said.count("Looking around.") == 1


def test_snapshots_keep_and_bring_back_a_state(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sleep", "1000")
    world.wait_state(place.at("one"), "working")
    world.ok("exec", place.at("one"), "--", "sh", "-c", "echo v1 > note; echo x >> README; git add README")
    world.ok("snapshot", "create", place.at("one"), "v1")
    world.ok("exec", place.at("one"), "--", "sh", "-c", "echo v2 > note; git commit -qam later")
    world.ok("snapshot", "restore", place.at("one"), "v1")
    assert world.ok("exec", place.at("one"), "--", "cat", "note").stdout == "v1\n"
    assert world.ok("exec", place.at("one"), "--", "git", "status", "--porcelain").stdout == "M  README\n?? note\n"
    rows = world.ok("snapshot", "list", place.at("one"), "--json").json["snapshots"]
    assert len(rows) == 2
    world.ok("snapshot", "delete", place.at("one"), "v1")
    world.fails(3, "snapshot", "restore", place.at("one"), "v1")


def test_rename_and_label_of_a_live_agent(place: Place) -> None:
    world = place.world
    start_command(place, "one", "sleep", "1000")
    world.wait_state(place.at("one"), "working")
    world.ok("rename", place.at("one"), "two")
    assert world.state(place.at("two")) == "working"
    world.fails(3, "explain", place.at("one"))
    assert world.agents()[place.at("two")]["branch"] == "muster/two"
    assert world.ok("exec", place.at("two"), "--", "git", "branch", "--show-current").stdout == "muster/two\n"
    start_command(place, "one", "sleep", "1000")
    world.fails(5, "rename", place.at("one"), "two")
    world.ok("label", place.at("two"), "--set", "run=42")
    rows = world.ok("list", "-l", "run=42", "--json").json["agents"]
    assert [row["name"] for row in rows] == ["two"]


def test_an_agent_with_a_time_out_fails_by_itself(place: Place) -> None:
    world = place.world
    world.ok("create", place.at("slow"), "command", "--timeout", "1", "--no-connect", "--", "sleep", "1000")
    row = world.wait_state(place.at("slow"), "failed")
    assert row["reason"] == "timeout"
    eventually(lambda: world.processes(row["id"]) == [])


def test_a_permission_dialog_is_waiting_refuses_text_and_can_be_answered(place: Place) -> None:
    world = place.world
    start_replay(place, "ask", '[[step]]\npermission = "rm -rf build"\ntool = "Bash"\n[[step]]\nsay = "done"\n')
    row = world.wait_state(place.at("ask"), "waiting")
    assert row["reason"] == "permission"
    world.fails(7, "message", place.at("ask"), "-m", "hello")
    world.ok("answer", place.at("ask"), "yes")
    world.ok("wait", place.at("ask"), "--until", "ready", "--timeout", "30s")
    events = world.ok("events", place.at("ask"), "--json").json["events"]
    assert [event["allowed"] for event in events if event["kind"] == "answered"] == [True]


def test_variables_reach_the_agent_and_no_command_line(place: Place) -> None:
    world = place.world
    world.ok(
        *(
            "create",
            place.at("one"),
            "command",
            "--env",
            "TOKEN=s3cr3t 'x'",
            "--no-connect",
            "--",
            "sh",
            "-c",
            'echo "<$TOKEN>"; sleep 1000',
        )
    )
    eventually(lambda: "<s3cr3t 'x'>" in world.run("capture", place.at("one")).stdout)
    import subprocess

    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "s3cr3t" not in shown


def test_record_leaves_out_what_was_mine_and_keeps_the_question(place: Place) -> None:
    world = place.world
    (world.repo / "draft").write_text("mine\n")
    start_replay(place, "talk", QUESTION)
    world.wait_state(place.at("talk"), "waiting")
    steps = world.ok("record", place.at("talk"), "--json").json["steps"]
    assert {"ask": "Shall I commit it?"} in steps
    assert "found.txt" in json.dumps(steps) and "draft" not in json.dumps(steps)


def test_record_writes_a_playbook_that_does_the_same_again(place: Place) -> None:
    world = place.world
    start_replay(
        place,
        "talk",
        '[[step]]\nsay = "hi"\n[[step]]\nwrite = "f"\ntext = "x\\n"\n[[step]]\ncommit = "made f"\n[[step]]\nwrite = "g"\ntext = "y\\n"\n[[step]]\nexit = 0\n',
    )
    world.wait_state(place.at("talk"), "done")
    world.ok("record", place.at("talk"), "-o", str(world.folder / "again.toml"))
    world.ok("create", place.at("again"), "replay", "--no-connect", "--", str(world.folder / "again.toml"))
    world.wait_state(place.at("again"), "done")
    assert world.ok("exec", place.at("again"), "--", "git", "log", "-1", "--format=%s").stdout == "made f\n"
    assert world.ok("exec", place.at("again"), "--", "cat", "f", "g").stdout == "x\ny\n"
    assert world.ok("exec", place.at("again"), "--", "git", "status", "--porcelain").stdout == "?? g\n"


def test_a_message_to_an_agent_at_work_is_queued_and_taken_once(place: Place) -> None:
    world = place.world
    start_replay(place, "busy", '[[step]]\nrun = "while [ ! -e go ]; do sleep 0.05; done"\n[[step]]\nsay = "over"\n')
    world.wait_state(place.at("busy"), "working")
    told = world.ok("message", place.at("busy"), "-m", "when you are done\nlook here")
    assert "queued" in told.stderr
    world.ok("exec", place.at("busy"), "--", "touch", "go")
    world.ok("wait", place.at("busy"), "--until", "ready", "--timeout", "30s")

    def heard() -> list[str]:
        entries = world.ok("transcript", place.at("busy"), "--json").json["entries"]
        return [entry["text"] for entry in entries if entry["role"] == "user"]

    assert eventually(heard) == ["when you are done\nlook here"]


def test_a_limit_of_memory_is_kept_or_refused_with_the_reason(place: Place) -> None:
    world = place.world
    greedy = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo survived"
    made = world.run(
        "create", place.at("greedy"), "command", "--memory", "64m", "--no-connect", "--", "sh", "-c", greedy
    )
    if made.code == 5:
        assert "--memory cannot be kept here" in made.stderr and "cgroup" in made.stderr
        assert place.at("greedy") not in world.agents()
    else:
        assert world.wait_state(place.at("greedy"), "failed", "done")["state"] == "failed"
        assert "survived" not in world.ok("capture", place.at("greedy")).stdout


def test_events_and_transcripts_can_be_followed_until_the_agent_is_destroyed(place: Place) -> None:
    import subprocess

    world = place.world
    start_replay(place, "talk", QUESTION)
    world.wait_state(place.at("talk"), "waiting")
    follow = subprocess.Popen(
        [str(world.bin / "muster"), "events", place.at("talk"), "--follow", "--json"],
        cwd=world.repo,
        env=world.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follow.stdout
        seen = []
        while not seen or seen[-1]["kind"] != "ask":
            seen.append(json.loads(follow.stdout.readline()))
        world.ok("answer", place.at("talk"), "please")
        while seen[-1]["kind"] != "turn-end":
            seen.append(json.loads(follow.stdout.readline()))
        world.ok("destroy", place.at("talk"))
        rest = follow.communicate(timeout=30)[0]
        assert follow.returncode == 0, rest
    finally:
        follow.kill()
        follow.wait()
