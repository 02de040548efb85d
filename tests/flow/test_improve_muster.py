"""improve with muster's own end-to-end tests as its target: bugs are put into muster's sources, and playbooks mend them.

The muster that improves is the one of this tree; the one under test is that of each checkout.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ..conftest import World
from .test_improve import edit, play, subjects, write

ROOT = Path(__file__).parents[2]
# The program that a test starts is the installed one, unless PYTHONPATH says otherwise; and it says so only when it is passed on.
PYTEST = 'PYTHONPATH="$PWD/src:$PYTHONPATH" exec "$0" -m pytest -o e2e_pass_env=PYTHONPATH "$@"'


class Bug(NamedTuple):
    file: str
    good: str
    bad: str
    tests: str
    test: str
    """The one that it breaks."""


BUGS = (
    Bug("cli/doctor.py", "--global user.name", "--global user.nick", "01_first_steps", "test_doctor_gives_the_command_for_a_missing_git_identity_which_is_no_failure"),
    Bug("cli/main.py", "muster {__version__}", "muster v{__version__}", "01_first_steps", "test_version_is_the_one_of_the_package"),
    Bug("fleet.py", "if not names and not labels and not", "if not names and labels and not", "08_bringing_home", "test_pull_without_a_name_says_how_agents_are_chosen"),
    Bug("cli/pull.py", "add_mutually_exclusive_group()", "add_argument_group()", "08_bringing_home", "test_ways_to_pull_exclude_each_other"),
    Bug("trash.py", "there is no {name} in the trash", "there is no {new} in the trash", "11_removing", "test_restore_of_what_is_not_in_the_trash_is_told"),
    Bug("cli/hosts.py", "no host {args.host} is", "no host {args.action} is", "13_hosts", "test_a_host_that_was_never_used_cannot_be_forgotten"),
    Bug("cli/config.py", "if not isinstance(found, dict) or part not in found:", "if not isinstance(found, dict):", "14_configuration", "test_config_get_of_a_key_that_is_not_set_is_not_found"),
    Bug("config.py", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "14_configuration", "test_config_path_follows_xdg_config_home"),
    Bug("cli/man.py", "there is no verb {wanted!r}", "there is no verb {wanted}", "15_shell", "test_a_manual_page_of_no_verb_is_not_found"),
    Bug("cli/report.py", "--e2e-artifacts {", "--artifacts {", "16_report", "test_a_folder_that_is_no_run_is_refused"),
    Bug("cli/tutorial_list.py", "(None, block.kind)", "(None, block.section)", "16_tutorials", "test_list_can_be_limited_to_headings"),
)  # fmt: skip
HEALTHY = (
    "test_help_on_a_verb_that_there_is_not_names_the_nearest",
    "test_config_get_without_a_key_says_what_is_missing",
    "test_the_folder_of_all_pages_must_be_named",
)


def own_repository(world: World) -> str:
    """This tree as a repository with one commit, which is returned, and the bugs as another on top."""
    repo = world.folder / "muster"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (repo / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, repo / name, follow_symlinks=False)
    world.repo = repo
    world.git("init", "-q", "-b", "main")
    world.git("config", "user.name", "Ann")
    world.git("config", "user.email", "ann@example.invalid")
    world.git("add", "-A", "-f")
    world.git("commit", "-q", "-m", "muster")
    original = world.git("rev-parse", "HEAD")
    for bug in BUGS:
        path = repo / "src" / "muster" / bug.file
        text = path.read_text()
        assert text.count(bug.good) == 1 and bug.bad not in text, bug
        path.write_text(text.replace(bug.good, bug.bad))
    world.git("commit", "-q", "-a", "-m", "bugs")
    return original


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_bugs_in_musters_own_sources_are_found_mended_verified_and_integrated(world: World, tmp_path: Path) -> None:
    original = own_repository(world)
    before = world.git("rev-parse", "HEAD"), world.git("status", "--porcelain", "--ignored")
    mended = {bug: play(edit(f"src/muster/{bug.file}", bug.bad, bug.good), summary=f"Mend {bug.file}") for bug in BUGS}
    write(tmp_path / "plays", {bug.test: text for bug, text in mended.items()})
    config = world.home / ".config" / "muster" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[improve]\npytest = {json.dumps(['sh', '-c', PYTEST, sys.executable])}\n")

    files = sorted({f"tests/e2e/test_tutorial_{bug.tests}.py" for bug in BUGS})
    chosen = " or ".join((*HEALTHY, *(bug.test for bug in BUGS)))
    command = (
        "improve",
        *files,
        "-a",
        "replay",
        "--playbooks",
        str(tmp_path / "plays"),
        "--times",
        "1",
        "--run",
        "own",
    )
    result = world.run(*command, "--integrator", "none", "--json", "--", "-k", chosen, timeout=1400)
    assert result.code == 0, result

    standing = json.loads((world.muster_home / "runs/own/baseline.json").read_text())["tests"]
    assert {one["id"].partition("::")[2]: one["status"] for one in standing} == {
        **dict.fromkeys(HEALTHY, "passing"),
        **{bug.test: "failing" for bug in BUGS},
    }
    told = json.loads(result.stdout.splitlines()[-1])
    count = len(BUGS)
    assert count >= 10
    assert told["funnel"] | {
        "tests": count + len(HEALTHY), "failing": count, "launched": count, "valid": count, "verified": count,
        "fixed": count, "integrated": count, "left_out": 0, "refused": 0, "blocked": 0,
    } == told["funnel"]  # fmt: skip
    assert sorted(subjects(world, told["branch"])) == sorted(f"Mend {bug.file}" for bug in BUGS)
    assert world.git("diff", "--name-only", original, told["commit"]) == "", "the tree is the one without bugs"
    assert world.git("rev-parse", told["branch"]) == told["commit"]
    now = world.git("rev-parse", "HEAD"), world.git("status", "--porcelain", "--ignored")
    assert now == before and world.git("symbolic-ref", "--short", "HEAD") == "main"
