"""Agents on a real sshd that rewrite their own records: the attacks that once worked, through the command line and the wire."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from ..conftest import Sshd, World, eventually

#: Where a verb may write in the user's home: muster's state, and what commits of agents need in the repository.
OWN = (".git/objects", ".git/refs/heads/muster", ".git/logs/refs/heads/muster", ".git/refs/muster")


class Victim:
    """A user with private files and two repositories, and an agent on another host that has committed something."""

    def __init__(self, world: World, sshd: Sshd) -> None:
        self.world, self.sshd = world, sshd
        self.other = world.home / "other"
        self.folder = world.home / "documents"
        self.folder.mkdir()
        for path in (world.home / ".bashrc", self.folder / "letter.txt"):
            path.write_text("mine\n")
        world.make_repo(self.other)
        (self.other / "secret.txt").write_text("do-not-send\n")
        self.world.git("add", ".", cwd=self.other)
        self.world.git("commit", "-qm", "secret", cwd=self.other)
        work = "echo evil >.bashrc; echo evil >theirs.txt; git add -A; git commit -qm theirs"
        world.ok("create", "far@box", "command", "--no-connect", "--", "sh", "-c", work)
        eventually(lambda: world.agents()["far@box"]["state"] == "done")
        (self.agent,) = (sshd.home / ".local/state/muster/agents").iterdir()

    def forge(self, **fields: object) -> None:
        """What the agent does: it owns the file."""
        path = self.agent / "agent.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields) + "\n")

    def files(self) -> dict[str, str]:
        """Every file of the user's outside of muster's own places, with a digest of its content."""
        found = {}
        for path in [*self.world.home.rglob("*"), *self.world.repo.rglob("*")]:
            name = str(path.relative_to(self.world.home.parent))
            if path.is_file() and not self._is_own(path):
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def _is_own(self, path: Path) -> bool:
        own = [self.world.repo / place for place in OWN] + [self.world.muster_home]
        return any(path.is_relative_to(place) for place in own)

    def sent(self) -> bool:
        """Whether an object of the other repository is anywhere on the host."""
        blob = self.world.git("rev-parse", "HEAD:secret.txt", cwd=self.other)
        stores = {path.parent for path in self.sshd.home.rglob("objects") if path.is_dir()}
        assert stores
        return any(
            subprocess.run(["git", f"--git-dir={store}", "cat-file", "-e", blob], capture_output=True).returncode == 0
            for store in stores
        )


@pytest.fixture
def victim(world: World, sshd: Sshd) -> Victim:
    return Victim(world, sshd)


def test_a_record_that_names_the_users_home_brings_no_file_there(victim: Victim) -> None:
    before = victim.files()
    victim.forge(mode="copy", repo=str(victim.world.home), gitdir="", common="", branch="")
    done = victim.world.run("pull", "far@box", "--merge")
    assert "changed behind muster's back" in done.stderr
    changed = {name for name, digest in victim.files().items() if before.get(name) != digest}
    assert (victim.world.home / ".bashrc").read_text() == "mine\n"
    # The merge that the user's command names, into the repository that muster recorded.
    inside = victim.world.repo.relative_to(victim.world.home.parent)
    assert done.code == 0 and all(Path(name).is_relative_to(inside) for name in changed)
    assert victim.world.git("log", "-1", "--format=%s") in ("theirs", "Merge branch 'muster/far'")


@pytest.mark.parametrize("branch", ["main", "HEAD", "-D", "../../../x", "refs/heads/main"])
def test_a_branch_in_a_record_moves_no_branch_of_the_users(victim: Victim, branch: str) -> None:
    before, tip = victim.files(), victim.world.git("rev-parse", "main")
    victim.forge(branch=branch)
    done = victim.world.run("pull", "far@box")
    assert done.code == 0 and "changed behind muster's back" in done.stderr
    assert victim.world.git("rev-parse", "main") == tip and victim.files() == before
    assert victim.world.git("for-each-ref", "--format=%(refname)", "refs/heads").split() == [
        "refs/heads/main",
        "refs/heads/muster/far",
    ]


@pytest.mark.parametrize("verb", ["pull", "push"])
def test_a_repository_in_a_record_is_neither_written_nor_sent(victim: Victim, verb: str) -> None:
    before = victim.files()
    git_dir = str(victim.other / ".git")
    victim.forge(repo=str(victim.other), common=git_dir, source=git_dir, branch="main")
    done = victim.world.run(verb, "far@box")
    assert "changed behind muster's back" in done.stderr
    assert victim.files() == before
    assert not victim.sent()


@pytest.mark.parametrize("field", ["workdir", "folder", "gitdir"])
def test_a_folder_in_a_record_is_not_moved_by_destroy(victim: Victim, field: str) -> None:
    """This sshd runs on the user's machine, so a path means the same on both sides."""
    before = victim.files()
    victim.forge(**{field: str(victim.folder)})
    done = victim.world.run("destroy", "far@box")
    assert done.code == 0 and "it had changed nothing" not in done.stdout
    assert victim.files() == before


def test_map_takes_no_branch_from_a_record(victim: Victim) -> None:
    tip, secret = victim.world.git("rev-parse", "main"), victim.world.git("rev-parse", "main", cwd=victim.other)
    (victim.sshd.home / "forge.py").write_text(
        "import json, os\n"
        "path = os.environ['MUSTER_AGENT_DIR'] + '/agent.json'\n"
        "record = json.load(open(path))\n"
        "assert record.get('branch') and record.get('repo') is not None\n"
        f"record |= {{'branch': 'main', 'repo': {str(victim.other)!r}}}\n"
        "open(path, 'w').write(json.dumps(record) + '\\n')\n"
    )
    work = "echo evil >theirs.txt; git add -A; git commit -qm theirs; exec python3 ~/forge.py"
    done = victim.world.run("map", "--run", "m", "-a", "command", "@box", "--", "sh", "-c", work, input=b"one\n")
    assert done.code == 0, done
    assert victim.world.git("rev-parse", "main") == tip
    assert victim.world.git("rev-parse", "main", cwd=victim.other) == secret
    assert victim.world.git("for-each-ref", "--format=%(refname)", "refs/heads").split() == [
        "refs/heads/main",
        "refs/heads/muster/m-0001",
    ]
