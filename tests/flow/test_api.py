"""The public API of the flow: what it exports, what docs/python.md shows, and the pipelines of examples/."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from muster import flow

from ..conftest import World

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]
#: The path of an agent that does what a TODO of `shop.py` says.
DO_TODO = """case {line} in 1) sed -i '1s/.*/RATE = 19/' shop.py;; *) sed -i '4s/.*/print(/' shop.py;; esac; git commit -qam 'Do line {line}'"""


def python(world: World, *argv: str) -> str:
    done = subprocess.run([sys.executable, *argv], cwd=world.repo, env=world.env, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


def test_every_exported_name_is_there_and_is_documented() -> None:
    text = (ROOT / "docs/python.md").read_text()
    for name in flow.__all__:
        assert getattr(flow, name) is not None
        assert name in dir(flow)
    for name in (
        "map",
        "reduce",
        "improve",
        "preview",
        "ImproveOptions",
        "Command",
        "NoGate",
        "Pytest",
        "Run",
        "Reduced",
        "MapOptions",
        "ReduceOptions",
    ):
        assert re.search(rf"\b{name}\b", text), name
    with pytest.raises(AttributeError, match="'muster.flow' has no attribute 'nothing'"):
        flow.nothing  # noqa: B018


def test_the_functions_keep_their_names_whatever_is_imported() -> None:
    import muster.flow.improving.stages
    import muster.flow.mapping.start
    import muster.flow.reducing.delivery  # noqa: F401

    assert callable(flow.map) and callable(flow.reduce) and callable(flow.improve)


def test_importing_the_flow_loads_none_of_it() -> None:
    code = "import sys; from muster import flow; print([m for m in sys.modules if m.startswith('muster.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['muster.flow']"


def test_the_code_of_the_page_runs(world: World) -> None:
    world.activate()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)
    out = python(world, "-c", "\n".join(blocks)).splitlines()
    assert out[:3] == ["0 ok None", "1 ok None", "2 ok None"]
    assert out[3] == "muster-run/map-1"
    assert [line for line in out if line.startswith("accepted")] == ["accepted 0001-0", "accepted 0003-2"]
    assert "left out 0002-1 red in the gate: test ! -e 1.txt exits with 1" in out
    assert out[-1] == "finished" and "outcome" in out
    assert world.git("ls-tree", "--name-only", "muster-run/map-1").split()[:2] == ["0.txt", "2.txt"]


def test_every_todo_becomes_a_commit_if_it_passes_the_gate(world: World) -> None:
    world.activate()
    (world.repo / "shop.py").write_text("RATE = 10  # TODO it is 19\n\n\nprint(RATE)  # TODO print nicely\n")
    world.git("add", "shop.py")
    world.git("commit", "-qm", "A shop")
    words = (
        "--type",
        "command",
        "--permissions",
        "ask",
        "--gate",
        f"{sys.executable} -m py_compile shop.py",
        "--",
        "sh",
        "-c",
        DO_TODO,
    )
    out = python(world, str(ROOT / "examples/todo_pipeline.py"), *words)
    assert "accepted 0001-shop-py-1: " in out and "left out 0002-shop-py-4: red in the gate: " in out
    assert out.splitlines()[-1] == "muster-run/todos"
    assert world.git("show", "muster-run/todos:shop.py").startswith("RATE = 19\n")
    body = world.git("log", "-1", "--format=%B", "muster-run/todos")
    assert body.startswith("Do line 1\n") and "Muster-Agent: todos-0001" in body and "Muster-Cost: " in body


@pytest.mark.slow
def test_the_pipeline_of_the_case_study_improves_tests(world: World) -> None:
    world.activate()
    (world.repo / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (world.repo / "test_calc.py").write_text(
        "import calc\n\n\ndef test_add():\n    assert calc.add(2, 1) == 3\n\n\ndef test_zero():\n    assert calc.add(0, 0) == 0\n"
    )
    (world.repo / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    world.git("add", "-A")
    world.git("commit", "-qm", "A calculator")
    agent = "case {item} in *add) sed -i 's/a - b/a + b/' calc.py; git commit -qam 'Add';; esac"
    out = python(world, str(ROOT / "examples/improve_tests_pipeline.py"), "command", "ask", "sh", "-c", agent)
    assert [line.split()[:2] for line in out.splitlines()[:2]] == [
        ["test_calc.py::test_add", "ok"],
        ["test_calc.py::test_zero", "ok"],
    ]
    assert out.splitlines()[-1] == "muster-run/map-1"
    body = world.git("log", "-1", "--format=%B", "muster-run/map-1")
    assert "Muster-Test: test_calc.py::test_add" in body and "Muster-Agent: map-1-0001" in body
