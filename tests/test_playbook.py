"""Playbooks in TOML: what is refused, and that what is written is read back exactly."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.agents.replay import playbook
from muster.agents.replay.player import format
from muster.errors import NotFound, UsageError


def load(text: str, where: str = "playbook") -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = playbook.document(text, where)["steps"]
    return steps


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[step]]\nsay = 'a'\n[[step]]\nsya = 'b'", "step 2: no kind of step is called 'sya'; did you mean 'say'?"),
        ("[[step]]\nrun = 'a'\ntimeot = 3", "step 1 (run): there is no option 'timeot'; did you mean 'timeout'?"),
        ("[[step]]\nrun = 'a'\nsay = 'b'", "step 1: it is of one kind only, not of run and say"),
        ("[[step]]\nwrite = 'a'", "step 1 (write): 'text' is missing"),
        ("[[step]]\nwait = 'a'", "step 1 (wait): 'wait' must be a number, 0 or more, not \"a\""),
        ("[[step]]\nwait = true", "must be a number"),
        ("[[step]]\nwait = nan", "must be a number"),
        ("[[step]]\nexit = 256", "must be an exit code"),
        ("[[step]]\nhang = false", "must be true"),
        ("[[step]]\ncrash = 'SEGFAULT'", "the name of a signal"),
        ("[[step]]\nexpect = ''\nmatches = '('", "a regular expression"),
        ("[[step]]\npermission = 'x'\ntool = 'T'\non_deny = 'stop'", '"exit" or "continue"'),
        ("[[step]]\ndelete = 'x'\ntext = 'T'", "it takes none"),
        ("[[step]]", "step 1 is empty"),
        ("[[steps]]\nsay = 'a'", "there is no key 'steps'; did you mean 'step'?"),
        ("step = 3", "no list of steps"),
        ("step = [3]", "step 1 is no table"),
        ("version = 2", "version is 2"),
        ("wait_for_message = 1", "'wait_for_message' must be true or false"),
        ("[[step]\n", "line 1"),
    ],
)
def test_a_wrong_playbook_is_refused_in_clear_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(text, "demo.toml")
    assert words in caught.value.message
    assert caught.value.message.startswith("demo.toml: ")


def test_a_playbook_keeps_its_top_level_words(tmp_path: Path) -> None:
    text = playbook.dump([{"say": "x"}], wait_for_message=True)
    (tmp_path / "p.toml").write_text(text)
    expected = {"version": 1, "wait_for_message": True, "steps": [{"say": "x"}]}
    assert playbook.read(tmp_path / "p.toml") == playbook.document(text) == expected
    with pytest.raises(NotFound):
        playbook.read(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError):
        playbook.read(tmp_path / "b.toml")


def test_the_example_in_the_docs_is_valid() -> None:
    docs = Path(__file__).parents[1] / "docs/playbooks.md"
    example = docs.read_text().split("```toml\n", 1)[1].split("```", 1)[0]
    assert len(load(example)) > 5
    for kind, (_, options) in format.KINDS.items():
        for word in (kind, *options):
            assert f"`{word}" in docs.read_text(), word


def test_what_dump_writes_load_reads_back_exactly() -> None:
    rng = random.Random(7)
    bits = ['"', '""', "'", "''", "\\", "\\e", "\n", "\r", "\r\n", "\t", " ", "a", "é", "😀", "\x00", "\x1b[0m", "\x7f"]
    bits += ["\u2028", "\x85", "#", "= [", "'''", '"""', "\\u0041", "word"]

    def text() -> str:
        return "".join(rng.choice(bits) for _ in range(rng.randrange(12)))

    values: dict[str, Callable[[], Any]] = {
        "text": text,
        "texts": lambda: [text() for _ in range(rng.randrange(3))],
        "number": lambda: rng.choice([0, 3, 10**9, 0.5, 1e-9, 1.0, 1e300]),
        "count": lambda: rng.randrange(10**9),
        "code": lambda: rng.randrange(256),
        "mode": lambda: rng.choice(["755", 0o644]),
        "pattern": lambda: rng.choice(["^a.*$", r"\d+\\"]),
        "signal": lambda: rng.choice(["SEGV", "SIGKILL"]),
        "on_deny": lambda: rng.choice(["exit", "continue"]),
        "true": lambda: True,
    }

    def step() -> dict[str, Any]:
        kind = rng.choice(list(format.KINDS))
        type_, options = format.KINDS[kind]
        made = {kind: values[type_]()}
        for option, wanted in options.items():
            if wanted.endswith("!") or rng.random() < 0.5:
                made[option] = values[wanted.rstrip("!")]()
        return made

    for _ in range(400):
        steps = [step() for _ in range(rng.randrange(5))]
        assert load(playbook.dump(steps)) == steps


def test_dump_is_readable_and_refuses_what_cannot_be_played() -> None:
    assert playbook.dump([{"write": "a.py", "text": 'x = """\\d"""\n'}]) == (
        '[[step]]\nwrite = "a.py"\ntext = \'\'\'\nx = """\\d"""\n\'\'\'\n'
    )
    for steps in ([{"sya": "x"}], [{"say": "half \ud83d"}]):
        with pytest.raises(UsageError):
            playbook.dump(steps)
