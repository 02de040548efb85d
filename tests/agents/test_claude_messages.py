"""Messages to Claude Code: each is delivered once and whole, or not reported as delivered."""

from __future__ import annotations

import random
import threading
import unicodedata
from pathlib import Path

import pytest

from muster.message import normal

from ..conftest import Result, eventually
from .conftest import Claude
from .test_claude import made, until

WORDS = [
    "plain",
    "two\nlines",
    "a\ttab",
    'say "no"',
    "it's",
    "$HOME",
    "`id`",
    "\\n",
    "\\",
    "ünï",
    "漢字",
    "🎉",
    "#1",
    "@x",
    "<b>",
    "%s",
]
FIRST = ["", "/", "!", "#", "@", "-", "--", "?", "~", "\n", " ", "\t", "1", "y"]


def sent(text: str) -> str:
    """The text as the model has to hear it: behind a harmless word where the client would obey it."""
    return normal(f"Message: {text}" if text[:1] in ("/", "!") else text).strip()


def heard(claude: Claude) -> list[str]:
    return [text.strip() for text in claude.heard()]


ODD = {
    "of 128 KB": "".join(f"line {n:05} of the long one\n" for n in range(4700)),
    "with tabs": "a\tb\n\tindented\n",
    "that begins with !": "!ls is no command here",
    "with newlines at the end": "and so on\n\n\n",
    "with blank lines": "first\n\n\nlast",
    "that looks like an answer": "1",
    "with what a terminal would obey": "red \x1b[31m and \x07 bell",
}


def test_odd_messages_arrive_whole(claude: Claude) -> None:
    made(claude, "hello")
    until(claude, "ready")
    expected = ["hello"]
    for what, text in ODD.items():
        path = claude.home / "text"
        path.write_text(text)
        result = claude.run("message", "one", "--message-file", str(path))
        if "\x1b" in text:
            assert (result.code, "control character" in result.stderr) == (2, True), result.stderr
            continue
        assert result.code == 0 and "delivered: one" in result.stderr, (what, result.stderr)
        expected.append(sent(text))
        until(claude, "ready")
        assert heard(claude) == expected, what


SHAPES = [
    "Re\u0301sume\u0301",
    "look at @README",
    "what of /help",
    "ends in \\",
    "a bracket [",
    "🎉",
    "a\ttab  \n",
    "exit",
    ":q",
]


def test_each_shape_of_message_is_sent_and_proven_also_after_a_start(claude: Claude) -> None:
    """Accents that the client composes, ends that it completes, and words that would end it."""
    claude.ok("create", "one", "claude", "--no-connect")
    for text in SHAPES:
        assert "delivered: one" in claude.ok("message", "one", "-m", text).stderr, text
        until(claude, "ready")
    claude.ok("stop", "one")
    claude.ok("start", "one")
    assert "delivered: one" in claude.ok("message", "one", "-m", "after the start").stderr
    until(claude, "ready")
    kept = [unicodedata.normalize("NFC", normal(text)) for text in SHAPES]
    kept[-2:] = ["Message: exit", "Message: :q"]
    assert [unicodedata.normalize("NFC", text) for text in heard(claude)] == [*kept, "after the start"]


def test_without_hooks_a_message_is_proven_by_the_transcript(claude: Claude) -> None:
    (claude.home / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    made(claude, "hello")
    until(claude, "ready")
    assert "delivered: one" in claude.ok("message", "one", "-m", "are you there?").stderr
    eventually(lambda: heard(claude) == ["hello", "are you there?"])


def test_a_message_that_meets_a_dialog_approves_nothing(claude: Claude) -> None:
    """Each turn asks for a tool, and a message is sent at the very moment at which its dialog opens."""
    claude.server.register("tool", {"shell": "echo made > made.txt"}, {"text": "never"})
    made(claude, "hello")
    row = until(claude, "ready")
    for n in range(4):
        results = run_at_once(claude, [f"#scn:tool please {n}", f"more of {n}", f"still more of {n}"])
        assert {result.code for result in results} <= {0, 7}, results
        until(claude, "waiting")
        while claude.state("one") != "ready":
            claude.run("answer", "one", "no")
    assert not (Path(str(row["workdir"])) / "made.txt").exists()


def test_a_message_to_one_that_is_starting_waits_for_it(claude: Claude) -> None:
    claude.ok("create", "one", "claude", "--no-connect")
    assert "delivered: one" in claude.ok("message", "one", "-m", "the first").stderr
    eventually(lambda: heard(claude) == ["the first"])


def test_what_somebody_left_in_the_box_is_not_sent_along(claude: Claude) -> None:
    made(claude, "hello")
    row = until(claude, "ready")
    claude.tmux("send-keys", "-t", f"={row['id']}:", "-l", "half a thought")
    eventually(lambda: "half a thought" in claude.ok("capture", "one").stdout)
    assert "delivered: one" in claude.ok("message", "one", "-m", "a whole one").stderr
    eventually(lambda: heard(claude) == ["hello", "a whole one"])


def test_several_lines_that_somebody_left_in_the_box_are_not_sent_along(claude: Claude) -> None:
    made(claude, "hello")
    row = until(claude, "ready")
    for key in ("first", "M-Enter", "second", "M-Enter", "third"):
        claude.tmux("send-keys", "-t", f"={row['id']}:", *([key] if key == "M-Enter" else ["-l", key]))
    eventually(lambda: "third" in claude.ok("capture", "one").stdout)
    assert "delivered: one" in claude.ok("message", "one", "-m", "a whole one").stderr
    eventually(lambda: heard(claude) == ["hello", "a whole one"])


def run_at_once(claude: Claude, texts: list[str]) -> list[Result]:
    """What became of each, in the order in which they ended."""
    results: list[Result] = []
    threads = [
        threading.Thread(target=lambda text=text: results.append(claude.run("message", "one", "-m", text)))  # type: ignore[misc]
        for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def send_at_once(claude: Claude, texts: list[str]) -> list[str]:
    """What is said of each; all are sent."""
    results = run_at_once(claude, texts)
    assert [result.code for result in results] == [0] * len(texts), [result.stderr for result in results]
    return [result.stderr.strip() for result in results]


def test_two_senders_at_once_do_not_mix(claude: Claude) -> None:
    made(claude, "hello")
    until(claude, "ready")
    texts = [f"message {n}\nof many lines" for n in range(4)]
    send_at_once(claude, texts)
    eventually(lambda: sorted(heard(claude)[1:]) == sorted(texts))


def test_of_senders_at_once_the_later_ones_find_it_at_work(claude: Claude) -> None:
    claude.server.register("slow", {"text": "at last", "hold": "go"})
    made(claude, "hello")
    until(claude, "ready")
    texts = [f"#scn:slow message {n}\nof many lines" for n in range(4)]
    assert send_at_once(claude, texts) == ["delivered: one"] + ["queued: one"] * 3
    claude.server.release("go")
    eventually(lambda: sorted(heard(claude)[1:]) == sorted(texts))


def some(chance: random.Random) -> str:
    parts = [chance.choice(WORDS) for _ in range(chance.randint(1, 8))]
    return chance.choice(FIRST) + chance.choice([" ", "\n", ""]).join(parts) * chance.choice([1, 1, 1, 1, 40])


def many(claude: Claude, agents: int, count: int, seed: int) -> None:
    """Random messages to some agents, all of them at once each time, to agents that are ready or at work."""
    chance = random.Random(seed)
    names = [f"a{n}" for n in range(agents)]
    expected: dict[str, list[str]] = {}
    for name in names:
        claude.ok("create", name, "claude", "--no-connect", "-m", f"I am {name}")
        expected[name] = [f"I am {name}"]
    claude.ok("wait", *names, "--until", "ready", "--timeout", "300s")
    for _ in range(count // agents):
        text = some(chance)
        claude.server.register("slow", {"text": "slowly", "word_delay": 0.5})
        path = Path(claude.home / "text")
        path.write_text(text)
        result = claude.run("message", *names, "--message-file", str(path), "--json")
        for row in result.json["results"]:
            if row["ok"]:
                assert row["result"] in ("delivered", "queued")
                expected[row["name"]].append(sent(text))
            else:
                assert not normal(text).strip(), row
        if chance.random() < 0.5:
            claude.ok("wait", *names, "--until", "ready", "--timeout", "120s")
    claude.ok("wait", *names, "--until", "ready", "--timeout", "120s")
    eventually(lambda: sorted(map(len, claude.each_heard())) == sorted(map(len, expected.values())))
    got = {texts[0]: [text.strip() for text in texts] for texts in claude.each_heard()}
    assert got == {texts[0]: texts for texts in expected.values()}


def test_random_messages_are_received_once_and_whole(claude: Claude) -> None:
    many(claude, agents=4, count=40, seed=4)


@pytest.mark.slow
def test_500_random_messages_are_received_once_and_whole(claude: Claude) -> None:
    many(claude, agents=5, count=500, seed=5)


@pytest.mark.slow
def test_20_agents_take_one_message_at_once(claude: Claude) -> None:
    many(claude, agents=20, count=40, seed=20)
