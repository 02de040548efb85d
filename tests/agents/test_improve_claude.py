"""improve from the suite to the branch with real clients: a scout, workers, one that weakens its test, and an integrator for a real conflict."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

import pytest

from .conftest import Claude

SHOP = """
def total(prices):
    return sum(prices) + 1


def label(name):
    return name.uper()


def greet(name):
    return "hello " + name


def weight(kilos):
    return kilos + " kg"
"""
TESTS = """
import shop


def test_total():
    assert shop.total([1, 2]) == 3


def test_label():
    assert shop.label("a") == "A"


def test_label_twice():
    assert shop.label("ab") == "AB"


def test_greet_begins():
    assert shop.greet("ann")[:5] == "Hello"


def test_greet_ends():
    assert shop.greet("ann")[-1] == "!"


def test_weight():
    assert shop.weight(5) == "5 kg"
"""
USAGE = {"usage": {"input": 100, "output": 10}}
TURNS = 4


def script(tests: str, edit: str, file: str, summary: str) -> list[dict[str, Any]]:
    """What the model says to a client that runs its tests, edits a file, runs them again, commits and submits."""
    run = f"python3 -m pytest -q {tests}"
    commands = (
        run,
        f"sed -i '{edit}' {file} && {run} && git commit -q -a -m '{summary}'",
        f"submit --outcome ok --summary '{summary}'",
    )
    steps = [*({"shell": command} for command in commands), {"text": "That is all."}]
    assert len(steps) == TURNS
    return [{**step, **USAGE} for step in steps]


def of(name: str) -> str:
    return f"test_shop.py::{name}"


WORKERS = {
    "test_label": ("s/uper/upper/", "shop.py", "Call upper by its name"),
    "test_total": ("s/ + 1//", "shop.py", "Sum up prices only"),
    # Two that collide in the same line; each of them is a fix.
    "test_greet_begins": ("s/hello/Hello/", "shop.py", "Greet with a capital"),
    "test_greet_ends": ('s/"hello " + name/"hello " + name + "!"/', "shop.py", "Greet with a mark"),
    "test_weight": ("s/assert shop.weight.*/assert shop.weight/", "test_shop.py", "Make the test robust"),
}
BOTH = f"{of('test_greet_begins')} {of('test_greet_ends')}"


@pytest.fixture
def shop(claude: Claude) -> Claude:
    """The small project with its bugs, a user in the middle of something, and a model that knows what to say to whom."""
    claude.activate()
    (claude.repo / "shop.py").write_text(SHOP.lstrip())
    (claude.repo / "test_shop.py").write_text(TESTS.lstrip())
    (claude.repo / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    claude.git("add", "-A")
    claude.git("commit", "-q", "-m", "a shop")
    (claude.repo / "README").write_text("not finished\n")
    (claude.repo / "notes").write_text("mine\n")
    for name, (edit, file, summary) in WORKERS.items():
        claude.server.register(name, *script(of(name), edit, file, summary))
        claude.server.cues[f"only this one: `{of(name)}`"] = name
    merged = 's/return "[Hh]ello.*/return "Hello " + name + "!"/'
    claude.server.register("integrator", *script(BOTH, merged, "shop.py", "Greet with both"))
    claude.server.cues["Two changes of this repository do not fit together"] = "integrator"
    return claude


def standing(world: Claude) -> tuple[str, ...]:
    """What is the user's: the branch, its commit, and the work tree with what is not committed in it."""
    asked = ("symbolic-ref HEAD", "rev-parse HEAD", "status --porcelain", "diff", "ls-files --stage", "stash list")
    return tuple(world.git(*words.split()) for words in asked)


def failing(world: Claude, commit: str) -> set[str]:
    """The tests that fail in a clean checkout of a commit."""
    tree = world.folder / "look" / commit
    world.git("clone", "-q", "--no-checkout", str(world.repo), str(tree))
    world.git("checkout", "-q", "--detach", commit, cwd=tree)
    words = ["python3", "-m", "pytest", "-q", "-rf", "--tb=no"]
    done = subprocess.run(words, cwd=tree, env=world.env, capture_output=True, check=False)
    lines = done.stdout.decode().splitlines()
    assert done.returncode in (0, 1), lines
    return {line.split()[1].partition("::")[2] for line in lines if line.startswith("FAILED")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_real_clients_make_a_verified_branch_of_a_broken_suite(shop: Claude) -> None:
    before = standing(shop)
    words = ("improve", "-a", "claude", "--permissions", "bypass", "--integrator", "claude", "--times", "1")
    done = shop.ok(*words, "--run", "fix", "--max-agents", "5", "--json", timeout=600)
    assert standing(shop) == before

    told = json.loads(done.stdout.splitlines()[-1])
    counts = told["funnel"]
    assert counts | {
        "tests": 6, "failing": 6, "groups": 1, "launched": 5, "valid": 5, "claimed": 5, "verified": 4, "fixed": 4,
        "improved": 0, "refused": 1, "integrated": 4, "left_out": 0, "blocked": 0,
    } == counts  # fmt: skip
    assert told["resolved"] == ["0004-test-greet-ends"]
    assert counts["tokens"] == 6 * TURNS * 110 and counts["cost_usd"] > 0, "five of them and the integrator"

    # One conversation each, in which the tests failed at first and passed then.
    asked = Counter((request.session, request.scenario) for request in shop.server.turns())
    assert Counter(scenario for _, scenario in asked) == Counter([*WORKERS, "integrator"])
    assert set(asked.values()) == {TURNS}
    for session, scenario in asked:
        first, second, third = shop.server.turns(session)[-1].tool_results
        count = 2 if scenario == "integrator" else 1
        assert "1 failed" in first and f"{count} passed" in second and third.startswith("submitted: ok"), scenario
    (question,) = (texts[0] for texts in shop.each_heard() if texts[0].startswith("Two changes"))
    assert '+    return "Hello " + name\n' in question and '+    return "hello " + name + "!"\n' in question

    # Each fix is a commit, and after it exactly those fail whose fix is still to come, and the one that was weakened.
    commits = shop.git("rev-list", "--reverse", "main..muster-run/fix").split()
    subjects = [shop.git("log", "-1", "--format=%s", commit) for commit in commits]
    assert subjects == [WORKERS[name][2] for name in WORKERS if name != "test_weight"]
    left = ["test_total", "test_greet_begins", "test_greet_ends"]
    for number, commit in enumerate(commits):
        assert failing(shop, commit) == {*left[number:], "test_weight"}
    assert shop.git("diff", "--name-only", "main", "muster-run/fix") == "shop.py"
    folder = shop.muster_home / "runs" / "fix" / "tasks"
    refused = json.loads((folder / "0005-test-weight" / "verified.json").read_text())
    assert (refused["claimed"], refused["result"], refused["kept_out"][0]["path"]) == ("ok", "refused", "test_shop.py")

    assert shop.agents() == {}
    for status in folder.glob("*/attempt-1/status.json"):
        assert shop.processes(json.loads(status.read_text())["agent"]["id"]) == []
