"""Attacks that were tried by hand, one test each: what a hostile host or agent does, and that it leads nowhere."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import stat
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import MusterError, NotFound, Refused
from muster.flow.run import results
from muster.model import Address, Spec

from .hostile import SECRET, Lab


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        lab = Lab(tmp_path_factory.mktemp("attacks"), monkeypatch)
        yield lab
        lab.end()


@pytest.fixture
def lab(built: Lab) -> Iterator[Lab]:
    built.reset()
    yield built
    built.end()


def forge(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields) + "\n")


def record(agent_id: str, **fields: object) -> str:
    return json.dumps({"id": agent_id, "name": "x", "type": "command", **fields})


# --- what a host answers


def test_an_id_with_a_path_in_it_removes_nothing_on_the_users_machine(lab: Lab) -> None:
    agent_id = "../../../private/agent"  # as seen from bindings/at-box
    line = f"{agent_id}\t{record(agent_id, trash={'destroyed': 1})}\n"

    def lie(verb: str, said: bytes) -> bytes:
        if verb != "trash":
            return said
        return said + (line if said.startswith(b"/") else f"trash\t{agent_id}\t0\told\n").encode()

    lab.box.lie = lie
    lab.new_fleet().gc(yes=True, older=0)
    assert lab.trespasses() == []


def test_an_id_with_a_path_in_it_is_no_agent(lab: Lab) -> None:
    agent_id = "../../../private/agent"
    lab.box.lie = lambda verb, said: (
        b"now 1\nhome /x\ndir %s\nfile ../names/far\t%s\n\ntails\n" % (agent_id.encode(), agent_id.encode())
        if verb == "survey"
        else said
    )
    with pytest.raises(NotFound):
        lab.new_fleet().get("far@box")
    assert lab.trespasses() == []


@pytest.mark.parametrize("told", ["a b", ".", "", "../x", "-x"])
@pytest.mark.parametrize("verb", ["claim", "survey", "trash"])
def test_a_state_folder_that_is_no_absolute_path_is_refused(lab: Lab, verb: str, told: str) -> None:
    """Every path of the host's agents begins with it: a relative one means a folder of whoever uses it next."""

    def lie(asked: str, said: bytes) -> bytes:
        if asked != verb:
            return said
        return b"\n".join(
            b"home " + told.encode() if line.startswith(b"home ") else told.encode() if line.startswith(b"/") else line
            for line in said.split(b"\n")
        )

    shutil.rmtree(lab.state / "bindings")
    lab.box.lie = lie
    fleet = lab.new_fleet()
    with pytest.raises(MusterError, match=r"where its state folder was expected|no agent old@box"):
        if verb == "claim":
            fleet.create(Spec(Address("young", "box"), "command", ("true",)))
        elif verb == "survey":
            fleet.stop(fleet.get("far@box"), 0)
        else:
            fleet.restore("old@box")
    assert list((lab.far / "login").iterdir()) == [] and lab.trespasses() == []


@pytest.mark.parametrize(
    "line",
    ["now x", "now nan", "now", "load \u00b2 \u00b2 1 1", f"pane far 1 \u00b2 0 {'9' * 5000} sh 0", "alive far \u00b2"],
)
def test_a_survey_line_that_makes_no_sense_is_no_crash(lab: Lab, line: str) -> None:
    line = line.replace("far", lab.one_id("far"))
    lab.box.lie = lambda verb, said: line.encode() + b"\n" + said + line.encode() if verb == "survey" else said
    assert [str(status.address) for status in lab.new_fleet().survey(["box"]).statuses] == ["far@box", "cop@box"]
    lab.new_fleet().glance("box")


def test_a_creator_with_an_impossible_process_number_is_no_crash(lab: Lab) -> None:
    creator = {"machine": os.uname().nodename, "pid": 2**70, "born": ""}
    forge(lab.folder("far") / "agent.json", creator=creator, phase="creating")
    assert lab.new_fleet().get("far@box").status.alarms


@pytest.mark.parametrize("value", [2**2000, float("inf"), float("nan"), -1e300])
def test_a_time_in_the_trash_that_never_was_is_no_crash(lab: Lab, value: float) -> None:
    (folder,) = lab.far.glob("trash/*/agent")
    forge(folder / "agent.json", trash={"destroyed": value, "kept": ["1 commit"]})
    lab.new_fleet().gc(yes=True)
    lab.new_fleet().trash()


def test_a_record_that_hides_behind_a_create_under_way_is_an_alarm(lab: Lab) -> None:
    forge(lab.folder("far") / "agent.json", phase="creating", repo=str(lab.other))
    assert {"phase", "repo"} <= {alarm.field for alarm in lab.new_fleet().get("far@box").status.alarms}


def test_a_name_that_was_given_to_another_folder_still_means_the_agent_that_muster_made(lab: Lab) -> None:
    mine = lab.folder("far")
    other = mine.parent / "far-00000000"
    other.mkdir()
    (other / "agent.json").write_text(record("far-00000000", name="far", created=1.0) + "\n")
    (lab.far / "names/far").write_text("far-00000000\n")
    found = lab.new_fleet().get("far@box")
    assert found.agent.id == lab.one_id("far") and [alarm.field for alarm in found.status.alarms] == ["name"]


def test_haves_of_a_host_are_only_names_of_commits(lab: Lab) -> None:
    lab.git("commit", "-q", "--allow-empty", "-m", "more")
    lab.box.sent.clear()
    more = b" ".join([b"HEAD:a.txt", b"--all", b"private", b"x" * 100]) + b" y" * 200_000 + b"\n"
    lab.box.lie = lambda verb, said: more + said if verb == "git-seed haves" else said
    lab.new_fleet().push(lab.new_fleet().get("far@box"), merge=True)
    assert not [found for found in lab.trespasses() if "sent" in found or "read" in found]


# --- tar


def _tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _file(name: str, content: bytes = b"evil", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(member, key, value)
    return member, content


BAD_MEMBERS = [
    _file("../escaped"),
    _file("a/../../escaped"),
    _file("/tmp/muster-escaped"),
    _file(".//../escaped"),
    _file("."),
    _file(""),
    _file(".git/config"),
    _file("sub/.git/hooks/pre-commit", mode=0o777),
    _file(".GIT/config"),
    _file(".g\u200cit/config"),
    _file("git~1/config"),
    _file("unasked.sh"),
    _file("link", b"", type=tarfile.SYMTYPE, linkname="/etc"),
    _file("hard", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    _file("dev", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    _file("pipe", b"", type=tarfile.FIFOTYPE),
    _file("l" * 400 + ".txt"),
    _file("n\nl.txt/../../../x.txt"),
]


@pytest.mark.parametrize("number", range(len(BAD_MEMBERS)))
def test_files_of_a_host_are_written_only_as_they_were_asked_for(lab: Lab, number: int) -> None:
    """The user's own checkout is the target: nothing may become part of its git directory."""
    archive = _tar(_file("good.txt", b"good"), BAD_MEMBERS[number], _file("sub/also.txt", b"good"))
    lab.box.lie = lambda verb, said: archive if verb == "files" else said
    fleet = lab.new_fleet()
    with contextlib.suppress(MusterError):
        fleet.pull_files(fleet.get("far@box"), ["*.txt", "sub"], ".")
    assert lab.trespasses(("home/project/good.txt", "home/project/sub", "home/project/sub/also.txt")) == []
    assert (lab.project / "good.txt").read_bytes() == b"good"
    assert not Path("/tmp/muster-escaped").exists()


def test_files_are_not_written_through_a_link_and_no_folder_is_made_behind_it(lab: Lab) -> None:
    (lab.project / "sub").symlink_to(lab.home / "private")
    lab.box.lie = lambda verb, said: _tar(_file("sub/new/x.txt")) if verb == "files" else said
    fleet = lab.new_fleet()
    with pytest.raises(Refused):
        fleet.pull_files(fleet.get("far@box"), ["sub"], ".")
    assert lab.trespasses(("home/project/sub",)) == []


@pytest.mark.parametrize("kind", ["compressed", "sparse", "negative", "long"])
def test_a_tar_of_a_host_does_not_fill_the_memory_or_hang(lab: Lab, kind: str) -> None:
    import gzip

    archive = _tar(_file("screen", b"x" * 1000))
    if kind == "compressed":
        archive = gzip.compress(archive)
    else:
        header = bytearray(archive[:512])
        if kind == "sparse":
            header[156:157] = b"S"
            header[483:495] = b"\x80" + (1 << 45).to_bytes(11, "big")
        elif kind == "negative":
            header[124:136] = b"\xff" + (-1024).to_bytes(11, "big", signed=True)
        else:
            header[124:136] = b"\x80" + (1 << 45).to_bytes(11, "big")
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        archive = bytes(header) + archive[512:]
    lab.box.lie = lambda verb, said: archive if verb == "get" else said
    fleet = lab.new_fleet()
    with contextlib.suppress(MusterError):
        fleet.screen("far@box")
    with contextlib.suppress(MusterError):
        list(fleet.cast("far@box"))


# --- git


def _tree(lab: Lab, *entries: tuple[str, str, bytes]) -> bytes:
    """The pack of a commit whose tree has these entries (mode, name, content), and the commit's name in front of it."""
    scratch = lab.root / "scratch.git"
    subprocess.run(["rm", "-rf", str(scratch)], check=True)
    lab.git("init", "-q", "--bare", str(scratch))

    def write(kind: str, data: bytes) -> str:
        argv = ["git", f"--git-dir={scratch}", "hash-object", "-t", kind, "-w", "--stdin", "--literally"]
        return subprocess.run(argv, input=data, capture_output=True, check=True, env=lab.env).stdout.decode().strip()

    raw = b""
    for mode, name, content in entries:
        kind = "tree" if mode == "40000" else "blob"
        sha = content.decode() if mode == "160000" else write(kind, content)
        raw += f"{mode} {name}".encode() + b"\0" + bytes.fromhex(sha)
    text = f"tree {write('tree', raw)}\nauthor A <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\nevil\n"
    tip = write("commit", text.encode())
    argv = ["git", f"--git-dir={scratch}", "pack-objects", "--revs", "--stdout", "-q"]
    pack = subprocess.run(argv, input=tip.encode(), capture_output=True, check=True, env=lab.env).stdout
    return tip.encode() + b"\0" + pack


def _answer(lab: Lab, made: bytes) -> None:
    tip, _, pack = made.partition(b"\0")
    answers = {"git-work tip": tip + b" " + tip + b"\n", "git-seed pack": pack}
    lab.box.lie = lambda verb, said: answers.get(verb, said)


EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
EVIL_TREES = [
    [("40000", ".git", b"")],
    [("40000", ".GIT", b"")],
    [("40000", "git~1", b"")],
    [("100644", "..", b"x")],
    [("100644", ".", b"x")],
    [("100644", "a/b", b"x")],
    [("100644", "a", b"x"), ("100644", "a", b"y")],
    [("100644", "a", b"x"), ("120000", "a", b"/etc")],
    [("120000", ".gitmodules", b"/etc/passwd")],
    [("100644", ".gitmodules", b'[submodule "../../x"]\n\tpath = x\n\turl = -u./evil\n')],
    [("100644", ".gitmodules", b'[submodule "x"]\n\tpath = -x\n\turl = ok\n')],
]


@pytest.mark.parametrize("number", range(len(EVIL_TREES)))
@pytest.mark.parametrize("how", ["", "merge", "rebase", "squash"])
def test_a_pack_with_an_evil_tree_is_refused(lab: Lab, number: int, how: str) -> None:
    _answer(lab, _tree(lab, *EVIL_TREES[number]))
    fleet = lab.new_fleet()
    with pytest.raises(MusterError):
        fleet.pull(fleet.get("far@box"), how=how, force=True)
    assert lab.trespasses() == []
    assert lab.git("for-each-ref", "refs/heads/muster") == ""


def test_a_commit_whose_files_are_missing_is_refused(lab: Lab) -> None:
    tip, _, _pack = _tree(lab, ("100644", "a", b"x")).partition(b"\0")
    scratch = lab.root / "scratch.git"
    argv = ["git", f"--git-dir={scratch}", "pack-objects", "--stdout", "-q"]
    half = subprocess.run(argv, input=tip + b"\n", capture_output=True, check=True, env=lab.env).stdout
    _answer(lab, tip + b"\0" + half)
    fleet = lab.new_fleet()
    with pytest.raises(MusterError):
        fleet.pull(fleet.get("far@box"))
    assert lab.git("for-each-ref", "refs/heads/muster") == ""
    lab.git("fsck", "--strict")


@pytest.mark.parametrize(
    "tip", ["HEAD", "-D", "main", "refs/heads/main", "0" * 40, "a" * 39, "A" * 40, "", "\u00e9" * 40]
)
def test_a_tip_that_is_no_commit_is_refused(lab: Lab, tip: str) -> None:
    lab.box.lie = lambda verb, said: f"{tip} {tip}\n".encode() if verb == "git-work tip" else said
    fleet = lab.new_fleet()
    with pytest.raises(MusterError):
        fleet.pull(fleet.get("far@box"), force=True)
    assert lab.trespasses() == []


def test_commits_arrive_only_below_muster(lab: Lab) -> None:
    for branch in ("main", "HEAD", "-D", "private", "refs/heads/main"):
        lab.reset()
        forge(lab.folder("far") / "agent.json", branch=branch)
        fleet = lab.new_fleet()
        before = lab.git("show-ref", "--heads")
        fleet.pull(fleet.get("far@box"), force=True)
        after = set(lab.git("show-ref", "--heads").splitlines()) - set(before.splitlines())
        assert [line.split()[1] for line in after] == ["refs/heads/muster/far"]
        assert [alarm.field for alarm in fleet.get("far@box").status.alarms] == ["branch"]


def test_a_tag_or_ref_of_the_same_name_does_not_take_the_place_of_the_branch(lab: Lab) -> None:
    lab.git("update-ref", "refs/muster/far", lab.withheld)
    lab.git("tag", "muster/far", "private")
    fleet = lab.new_fleet()
    told = fleet.pull(fleet.get("far@box"), how="merge")
    assert lab.git("rev-parse", "HEAD").strip() == told["tip"]


def test_what_a_folder_was_changed_by_is_told_from_the_patch_itself(lab: Lab) -> None:
    patch = b"diff --git a/unseen b/unseen\nnew file mode 100644\n--- /dev/null\n+++ b/unseen\n@@ -0,0 +1 @@\n+x\n"
    calls = []

    def lie(verb: str, said: bytes) -> bytes:
        if verb != "git-work diff":
            return said
        calls.append(verb)
        return b"a.txt\n" if len(calls) == 1 else patch

    lab.box.lie = lie
    fleet = lab.new_fleet()
    told = fleet.pull(fleet.get("cop@box"), how="merge")
    assert told["changed"] == ["unseen"]


@pytest.mark.parametrize(
    "name", ["../escaped", ".git/config", ".GIT/config", "sub/.git/hooks/x", "/tmp/muster-escaped"]
)
def test_a_patch_stays_in_its_folder_and_out_of_git(lab: Lab, name: str) -> None:
    patch = f"diff --git a/{name} b/{name}\nnew file mode 100755\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
    lab.box.lie = lambda verb, said: patch.encode() if verb == "git-work diff" else said
    fleet = lab.new_fleet()
    with pytest.raises(MusterError):
        fleet.pull(fleet.get("cop@box"), how="merge")
    assert lab.trespasses() == []


def test_a_patch_does_not_write_through_a_link_that_it_makes(lab: Lab) -> None:
    patch = (
        f"diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+{lab.home}/private\n"
        "\\ No newline at end of file\n"
        "diff --git a/x/y b/x/y\nnew file mode 100644\n--- /dev/null\n+++ b/x/y\n@@ -0,0 +1 @@\n+x\n"
    )
    lab.box.lie = lambda verb, said: patch.encode() if verb == "git-work diff" else said
    fleet = lab.new_fleet()
    with pytest.raises(MusterError):
        fleet.pull(fleet.get("cop@box"), how="merge")
    assert lab.trespasses(("home/plain/x",)) == []


# --- an agent on the user's own machine that can write only to its own folder and work dir


def test_exec_runs_where_muster_put_the_agent(lab: Lab) -> None:
    (lab.folder("near") / "cwd").write_text(str(lab.home / "private"))
    fleet = lab.new_fleet()
    running = fleet.exec(fleet.get("near"), ["pwd"], terminal=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert running.communicate()[0].decode().strip() == str(lab.state / "work" / lab.one_id("near"))


@pytest.mark.parametrize("part", ["session", "rec", "ev", "."])
def test_a_folder_that_became_a_link_is_not_read(lab: Lab, part: str) -> None:
    folder = lab.folder("near")
    path = folder if part == "." else folder / part
    path.rename(path.with_name("moved-away"))
    path.symlink_to(lab.home / "private")
    (lab.home / "private/1.raw").write_bytes(SECRET)
    os.utime(lab.home / "private/1.raw", (1, 2))
    fleet = lab.new_fleet()
    for call in (
        lambda: fleet.screen("near"),
        lambda: list(fleet.cast("near")),
        lambda: fleet.clone(fleet.get("near"), Address("twin", "box"), "", {}),
        lambda: fleet.events("near"),
    ):
        with contextlib.suppress(MusterError):
            call()
    assert [found for found in lab.trespasses() if "1.raw" not in found] == []
    assert (lab.home / "private/1.raw").stat().st_atime == 1


def test_a_work_dir_that_became_a_link_is_not_cloned(lab: Lab) -> None:
    work = lab.far / "work" / lab.one_id("cop")
    work.rename(work.with_name("moved-away"))
    work.symlink_to(lab.home / ".ssh")
    fleet = lab.new_fleet()
    with pytest.raises(Refused, match="replaced by a link"):
        fleet.clone(fleet.get("cop@box"), Address("twin", ""), "", {})
    assert lab.trespasses() == [] and "twin" not in [one.agent.name for one in lab.new_fleet().survey().statuses]


@pytest.mark.parametrize(
    "part", ["bin", "launch-env", ".", "screen", "agent.json", "events.jsonl", "ev", "notify", "env"]
)
def test_a_link_in_the_folder_of_an_agent_is_not_written_through(lab: Lab, part: str) -> None:
    folder = lab.folder("near")
    path = folder if part == "." else folder / part
    if os.path.lexists(path):
        path.rename(path.with_name("moved-away"))
    path.symlink_to(
        lab.home / (".bashrc" if part in ("launch-env", "screen", "agent.json", "events.jsonl") else "private")
    )
    for verb in ("label", "start", "stop", "rename", "destroy"):
        fleet = lab.new_fleet()
        with contextlib.suppress(MusterError):
            one = fleet.get("near" if verb != "destroy" else "moved")
            if verb == "label":
                fleet.label(one, {"a": "b"})
            elif verb == "start":
                fleet.start(one)
            elif verb == "stop":
                fleet.stop(one, 0)
            elif verb == "rename":
                fleet.rename(one, "moved")
            else:
                fleet.destroy(one)
    assert lab.trespasses() == []


@pytest.mark.parametrize("name", ["near", "far@box", "cop@box"])
@pytest.mark.parametrize(
    "part", ["git", "git/HEAD", "git/refs/muster/base", "git/objects/info/alternates", "repo/HEAD"]
)
def test_a_link_in_a_git_directory_of_an_agent_is_not_read(lab: Lab, name: str, part: str) -> None:
    path = lab.folder(name.partition("@")[0]) / part
    if os.path.lexists(path):
        path.rename(path.with_name("moved-away"))
    elif not path.parent.is_dir():
        return  # only a worktree has a git directory there
    path.symlink_to(lab.home / ".bashrc")
    fleet = lab.new_fleet()
    one = fleet.get(name)
    for call in (
        lambda: fleet.git_counts(fleet.survey().statuses),
        lambda: fleet.diff(one),
        lambda: fleet.push(one),
        lambda: fleet.pull(one),
        lambda: fleet.snapshots(one),
        lambda: fleet.snapshot(one, "create"),
        lambda: fleet.uncommitted_files(one),
        lambda: fleet.playbook(one),
        lambda: fleet.clone(one, Address("twin"), "", {}),
    ):
        with contextlib.suppress(MusterError):
            call()
    fleet.destroy(one)
    assert lab.trespasses() == []


def test_a_time_of_a_commit_that_is_no_number_is_no_crash(lab: Lab) -> None:
    lab.box.lie = lambda verb, said: said.replace(b" ", b" x") if verb == "env" and b"\n" in said else said
    fleet = lab.new_fleet()
    with pytest.raises(MusterError, match="where a number was expected"):
        fleet.playbook(fleet.get("far@box"))


# --- what a commit of an agent makes git do on the user's machine


@pytest.fixture
def submodule(lab: Lab) -> Iterator[Lab]:
    """The project has a submodule that is checked out; an agent's commit changes .gitmodules."""
    lab.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(lab.other), "sub")
    lab.git("commit", "-qm", "a submodule")
    yield lab


def test_the_name_of_a_submodule_runs_no_command(submodule: Lab) -> None:
    lab, pwned = submodule, submodule.root / "pwned"
    # `git -c submodule.NAME.url=…` ends the key at the first "=".
    text = f'[submodule "a.update=!touch {pwned};#"]\n\tpath = sub\n\turl = x\n'
    text += f'[submodule "a"]\n\tpath = sub\n\turl = {lab.other}\n'
    (lab.project / ".gitmodules").write_text(text)
    lab.git("commit", "-qam", "what an agent had merged")
    fleet = lab.new_fleet()
    with contextlib.suppress(MusterError):
        fleet.create(Spec(Address("young"), "command", ("true",), mode="worktree"))
    assert not pwned.exists()


def test_a_link_in_the_place_of_a_submodule_is_not_followed(submodule: Lab) -> None:
    lab = submodule
    head = lab.git("symbolic-ref", "HEAD", cwd=lab.project / "sub")
    lab.git("rm", "-q", "--cached", "sub")
    target = (
        subprocess.run(
            ["git", "hash-object", "-w", "--stdin"],
            input=str(lab.project / "sub").encode(),
            capture_output=True,
            check=True,
            cwd=lab.project,
            env=lab.env,
        )
        .stdout.decode()
        .strip()
    )
    lab.git("update-index", "--add", "--cacheinfo", f"120000,{target},sub")
    lab.git("commit", "-qm", "what an agent had merged")
    fleet = lab.new_fleet()
    with contextlib.suppress(MusterError):
        fleet.create(Spec(Address("young"), "command", ("true",), mode="worktree", clean=True))
    assert lab.git("symbolic-ref", "HEAD", cwd=lab.project / "sub") == head


def test_after_an_agent_did_its_worst_the_users_git_runs_nothing_of_it(lab: Lab) -> None:
    """Everything that git runs, planted in every git file that an agent reaches by its own git commands and its work dir."""
    ran = lab.root / "ran"
    evil = lab.root / "evil"
    evil.write_text(f'#!/bin/sh\necho "$0 $*" >>{ran}\ncat\n')
    evil.chmod(0o755)
    work, repo = lab.state / "work" / lab.one_id("near"), lab.folder("near") / "repo"
    settings = (
        *("core.fsmonitor", "core.hooksPath", "core.pager", "core.editor", "core.sshCommand", "core.askPass"),
        *(
            "alias.status",
            "alias.co",
            "filter.evil.clean",
            "filter.evil.smudge",
            "filter.evil.process",
            "diff.external",
        ),
        *("diff.evil.textconv", "diff.evil.command", "merge.evil.driver", "credential.helper", "gpg.program"),
        *("sequence.editor", "uploadpack.packObjectsHook", "core.alternateRefsCommand", "init.templateDir"),
    )
    (work / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (work / ".gitmodules").write_text(f'[submodule "x"]\n\tpath = x\n\turl = {lab.other}\n')
    (work / ".gitconfig").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (work / "c.txt").write_text("more\n")
    lab.git("add", ".", cwd=work)
    lab.git("commit", "-qm", "worst", cwd=work)
    for name in settings:
        value = str(lab.root) if name in ("core.hooksPath", "init.templateDir") else str(evil)
        lab.git("config", name, value, cwd=work)
    lab.git("config", "include.path", f"{work}/.gitconfig", cwd=work)
    lab.git("config", "extensions.worktreeConfig", "true", cwd=work)
    (repo / "config.worktree").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    (repo / "info/attributes").write_text("* filter=evil\n")
    hooks = ("pre-commit", "post-commit", "post-checkout", "post-merge", "reference-transaction", "post-index-change")
    (repo / "hooks").mkdir(exist_ok=True)
    for hook in hooks:
        shutil.copy2(evil, repo / "hooks" / hook)
        shutil.copy2(evil, lab.root / hook)
    ran.unlink(missing_ok=True)

    def user() -> None:
        (lab.project / "mine.txt").write_text(f"{time.monotonic()}\n")
        lab.git("status")
        lab.git("add", ".")
        lab.git("commit", "-qm", "mine")
        lab.git("checkout", "-q", "-b", f"b{time.monotonic_ns()}")
        lab.git("checkout", "-q", "-")
        lab.git("pull", "-q", "--no-rebase", ".", "main")
        lab.git("diff", "HEAD~1")
        assert not ran.exists(), ran.read_text()

    user()
    fleet = lab.new_fleet()
    fleet.git_counts(fleet.survey().statuses)
    fleet.diff(fleet.get("near"))
    fleet.snapshot(fleet.get("near"), "create", "again")
    assert not ran.exists()
    told = fleet.pull(fleet.get("near"), how="merge")
    assert {"core.fsmonitor", "hooks/pre-commit", "include.path"} <= set(told["planted"])
    user()
    twin = fleet.clone(fleet.get("near"), Address("twin"), "", {})
    fleet.wait([twin], frozenset({"done", "failed"}), timeout=120)
    assert not ran.exists(), ran.read_text()
    user()
    fleet.destroy(fleet.get("near"))
    user()
    fleet.restore("near")
    user()


@pytest.mark.parametrize("name", ["far@box", "cop@box", "near"])
def test_without_local_records_a_repository_is_asked_for_and_never_taken_from_the_host(lab: Lab, name: str) -> None:
    shutil.rmtree(lab.state / "bindings")
    fleet = lab.new_fleet()
    one = fleet.get(name)
    assert not one.status.bound and one.agent.repo == ""
    for verb in (fleet.pull, fleet.push):
        with pytest.raises(Refused) as refused:
            verb(one)
        assert refused.value.hint
    fleet.label(one, {"a": "b"})
    fleet.diff(one)
    fleet.explain(one)
    fleet.stop(one, 0)
    fleet.rename(one, "moved")
    moved = fleet.get(name.replace(name.partition("@")[0], "moved"))
    if name != "cop@box":
        assert fleet.pull(moved, to=str(lab.project))["branch"] == "muster/moved"
    fleet.destroy(moved)
    fleet.restore(str(moved.status.address))
    assert lab.trespasses() == []


# --- an agent with the user's rights that changes the user's own repository


PLANT = r"""
cd "$1" && mkdir -p .git/hooks .git/info && printf '#!/bin/sh\n' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
git config filter.evil.clean 'sh evil' && git config remote.origin.url x && echo '* filter=evil' >.git/info/attributes
"""


def _warnings(lab: Lab, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    from muster.cli import main

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(lab.project)
        main.main(list(words))
    return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]


@pytest.mark.parametrize("mode", ["worktree", "mirror", "in-place"])
def test_what_an_agent_planted_in_the_users_repository_is_told(
    lab: Lab, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    lab.git("config", "alias.mine", "!true")
    fleet = lab.new_fleet()
    spec = Spec(Address("planter"), "command", ("sh", "-c", PLANT, "sh", str(lab.project)), mode=mode)
    fleet.wait([fleet.create(spec)], frozenset({"done"}), timeout=120)
    alarms = {alarm.field: alarm.recorded for alarm in fleet.explain(fleet.get("planter")).alarms}
    assert alarms == {"hooks/pre-commit": "", "filter.evil.clean": "", "info/attributes": ""}
    for verb in ("pull", "diff", "explain", "destroy"):
        (line,) = _warnings(lab, capsys, verb, "planter")
        assert "hooks/pre-commit (new)" in line and "filter.evil.clean (new)" in line and "planter was created" in line
        assert "alias.mine" not in line and "remote" not in line


def test_what_the_user_changed_is_told_as_a_change_and_nothing_is_told_without_one(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.git("config", "alias.mine", "!true")
    fleet = lab.new_fleet()
    fleet.wait([fleet.create(Spec(Address("quiet"), "command", ("true",)))], frozenset({"done"}), timeout=120)
    lab.git("config", "branch.main.remote", "origin")
    assert _warnings(lab, capsys, "pull", "quiet") == []
    lab.git("config", "alias.mine", "!false")
    (line,) = _warnings(lab, capsys, "diff", "quiet")
    assert "alias.mine (changed)" in line
    lab.git("config", "--unset", "alias.mine")
    assert _warnings(lab, capsys, "diff", "quiet") == []


def test_a_changed_file_that_the_users_configuration_includes_is_told(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.git("config", "include.path", "more")
    (lab.project / ".git/more").write_text("")
    fleet = lab.new_fleet()
    fleet.wait([fleet.create(Spec(Address("quiet"), "command", ("true",)))], frozenset({"done"}), timeout=120)
    (lab.project / ".git/more").write_text("[core]\n\tfsmonitor = evil\n")
    (line,) = _warnings(lab, capsys, "diff", "quiet")
    assert "include.path more (changed)" in line


# --- a neighbour's result


@pytest.mark.parametrize("copied", [False, True], ids=["made up", "copied"])
def test_a_result_that_another_agent_wrote_does_not_count(lab: Lab, copied: bool) -> None:
    """Neither one that it made up, nor its own, sealed with its own key."""
    forged = (lab.folder("cop") / "result.json").read_text()
    if not copied:
        forged = forged.replace("fine", "mine")
    (lab.folder("far") / "result.json").write_text(forged)
    status = lab.new_fleet().get("far@box").status
    assert [alarm.field for alarm in status.alarms] == ["result"]
    assert results.of(status) == results.FOREIGN
    honest = lab.new_fleet().get("cop@box").status
    assert honest.alarms == () and isinstance(results.of(honest), results.Result)


def test_each_agent_has_a_key_of_its_own_that_no_record_holds(lab: Lab) -> None:
    keys = [
        line.split("=")[1]
        for name in ("far", "cop")
        for line in (lab.folder(name) / "env").read_text().splitlines()
        if line.startswith("export MUSTER_RESULT_KEY=")
    ]
    assert len(set(keys)) == 2
    assert not any(key in (lab.folder(name) / "agent.json").read_text() for key in keys for name in ("far", "cop"))
    kept = [lab.state / f"bindings/at-box/{lab.one_id(name)}.key" for name in ("far", "cop")]
    assert [path.read_text() for path in kept] == keys
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
