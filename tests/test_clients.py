"""Real coding agents against the scripted server, without any network: what they show, what they do, and what the model was given.

They are installed by scripts/setup-clients; without it these tests skip, and say why.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import eventually
from .support import clients
from .support.clients import Missing, Offline, Terminal, appended
from .support.model_server import ModelServer

TEXT = "two lines\nwith 'quotes', $HOME `id` \\ and — ünïcode"
WORK = ({"text": "I write it.", "shell": "printf done > made.txt"}, {"text": "It is written."})
USAGE = {"input": 7, "output": 9, "cache_read": 11, "cache_write": 13}


@pytest.fixture
def offline() -> Iterator[Offline]:
    try:
        inside = Offline()
    except Missing as missing:
        pytest.skip(str(missing))
    with inside:
        yield inside


@pytest.fixture
def server(offline: Offline) -> Iterator[ModelServer]:
    with ModelServer({"work": list(WORK)}, netns=offline.path) as server:
        yield server


class Client:
    """One client with a home and a work folder of its own."""

    def __init__(self, name: str, folder: Path, offline: Offline, server: ModelServer) -> None:
        try:
            self.program = clients.find(name)
        except Missing as missing:
            pytest.skip(str(missing))
        self.name, self.folder, self.offline, self.server = name, folder, offline, server
        self.home, self.cwd, self.events = folder / "home", folder / "work", folder / "events"
        self.cwd.mkdir(parents=True)
        if name == "claude":
            hooks = clients.claude_hooks(self.events, "SessionStart", "UserPromptSubmit", "Stop", "StopFailure")
            clients.claude_home(self.home, self.cwd, settings=hooks)
            self.env = clients.claude_env(server.url, self.home)
        else:
            clients.codex_home(self.home, self.cwd, server_url=server.url, notify=clients.appends(self.events))
            self.env = clients.codex_env(server.url, self.home)

    def headless(self, prompt: str) -> tuple[int, list[dict[str, Any]]]:
        """One turn without a terminal: the exit status, and what it printed, as the JSON that it is."""
        argv = {
            "claude": ["-p", "--output-format", "stream-json", "--verbose", prompt],
            "codex": ["exec", "--json", "--skip-git-repo-check", prompt],
        }[self.name]
        done = subprocess.run(
            self.offline.argv(self.program, *argv),
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert lines, f"exit {done.returncode}: {done.stdout}\n{done.stderr}"
        return done.returncode, lines

    def said(self, lines: list[dict[str, Any]]) -> str:
        """Its last words."""
        if self.name == "claude":
            return str(lines[-1]["result"])
        texts = [line["item"]["text"] for line in lines if line.get("item", {}).get("type") == "agent_message"]
        return str(texts[-1]) if texts else ""

    def terminal(self, prompt: str) -> Terminal:
        return Terminal(self.folder, self.offline.argv(self.program, prompt), cwd=self.cwd, env=self.env)

    def turns_ended(self) -> list[str]:
        """The last words of each turn that the client said it ended, in its main thread."""
        if self.name == "claude":
            ends = [e for e in appended(self.events) if e["hook_event_name"] == "Stop"]
            return [str(end["last_assistant_message"]) for end in ends]
        # codex tells of the thread in which it finds a title for the session too.
        main = {request.session for request in self.server.turns()}
        return [str(e["last-assistant-message"]) for e in appended(self.events) if e["thread-id"] in main]


@pytest.fixture(params=["claude", "codex"])
def client(request: pytest.FixtureRequest, tmp_path: Path, offline: Offline, server: ModelServer) -> Client:
    return Client(request.param, tmp_path, offline, server)


@pytest.fixture
def client_named(tmp_path: Path, offline: Offline, server: ModelServer) -> Callable[[str], Client]:
    return lambda name: Client(name, tmp_path, offline, server)


def test_nothing_inside_reaches_out_and_nobody_else_reaches_the_server(offline: Offline, server: ModelServer) -> None:
    devices = subprocess.run(offline.argv("cat", "/proc/net/dev"), capture_output=True, text=True, check=True).stdout
    assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"]
    routes = subprocess.run(offline.argv("cat", "/proc/net/route"), capture_output=True, text=True, check=True).stdout
    assert len(routes.splitlines()) == 1  # the heading
    code = "import http.client, sys; c = http.client.HTTPConnection(sys.argv[1]); c.request('HEAD', '/'); print(c.getresponse().status)"
    argv = ["python3", "-c", code, server.url.removeprefix("http://")]
    inside = subprocess.run(offline.argv(*argv), capture_output=True, text=True, check=False)
    assert inside.stdout == "200\n", inside.stderr
    outside = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "ConnectionRefusedError" in outside.stderr


def test_this_process_stays_in_its_own_namespace() -> None:
    before = os.readlink("/proc/self/ns/net")
    try:
        with Offline() as inside:
            assert os.readlink(inside.path) != before
    except Missing as missing:
        pytest.skip(str(missing))
    assert os.readlink("/proc/self/ns/net") == before


def test_a_client_that_is_not_there_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "node_modules" / ".bin" / "claude"
    monkeypatch.setattr(clients, "CLIENTS", tmp_path)
    monkeypatch.setitem(clients.PLACES, "claude", place)
    with pytest.raises(Missing, match="claude is not installed: run scripts/setup-clients$"):
        clients.find("claude")
    place.parent.mkdir(parents=True)
    (tmp_path / "node_modules" / "muster-why").write_text("no node and npm\n")
    with pytest.raises(Missing, match="claude: no node and npm$"):
        clients.find("claude")
    (tmp_path / "node_modules" / "muster-why").unlink()
    place.touch()
    assert clients.find("claude") == place


def test_a_turn_of_text_arrives_once_and_whole(client: Client) -> None:
    code, lines = client.headless(TEXT)
    assert (code, client.said(lines)) == (0, TEXT)
    (turn,) = client.server.turns()
    assert turn.user_texts == [TEXT]
    assert turn.session == (lines[-1]["session_id"] if client.name == "claude" else lines[0]["thread_id"])
    assert [r.path for r in client.server.requests if not r.api] == []


def test_a_turn_with_a_tool_does_the_work_and_reports_the_usage_as_sent(client: Client) -> None:
    steps = [{**step, "usage": USAGE} for step in WORK]
    code, lines = client.headless(f"write it {client.server.register('counted', *steps)}")
    assert (code, client.said(lines)) == (0, "It is written.")
    assert (client.cwd / "made.txt").read_text() == "done"
    assert [(r.step, r.status) for r in client.server.turns()] == [(0, 200), (1, 200)]
    assert client.server.user_texts() == ["write it #scn:counted"]
    usage = lines[-1]["usage"]
    if client.name == "claude":
        names = "input_tokens output_tokens cache_read_input_tokens cache_creation_input_tokens"
        assert [usage[name] for name in names.split()] == [14, 18, 22, 26]
    else:
        names = "input_tokens output_tokens cached_input_tokens cache_write_input_tokens"
        assert [usage[name] for name in names.split()] == [62, 18, 22, 26]  # the input includes what was cached


def test_an_error_that_stays_is_told(client: Client) -> None:
    mark = client.server.register("bad", {"error": 400, "message": "the scripted fault"})
    code, lines = client.headless(mark)
    assert code == 1
    assert "the scripted fault" in json.dumps(lines)
    assert {r.status for r in client.server.turns()} == {400}


@pytest.mark.parametrize(
    "error", [{"error": 529}, {"error": 429, "retry_after": 1}, {"error": "cut"}], ids=["overload", "limit", "cut"]
)
def test_an_error_that_passes_is_overcome_and_nothing_is_said_twice(client: Client, error: dict[str, Any]) -> None:
    mark = client.server.register("passing", {**error, "times": 1, "text": "one two three four"})
    code, lines = client.headless(mark)
    assert (code, client.said(lines)) == (0, "one two three four")
    assert [r.status for r in client.server.turns()] == [-1 if error["error"] == "cut" else error["error"], 200]
    assert client.server.user_texts() == [mark]


def test_in_a_terminal_it_asks_nothing_takes_its_first_prompt_and_ends_its_turns(client: Client) -> None:
    with client.terminal("begin #scn:work") as terminal:
        eventually(lambda: client.turns_ended() == ["It is written."])
        eventually(lambda: "It is written." in terminal.screen())
        assert (client.cwd / "made.txt").read_text() == "done"
        terminal.paste(TEXT)
        eventually(lambda: "ünïcode" in terminal.screen())
        terminal.keys("Enter")
        eventually(lambda: len(client.turns_ended()) == 2)
        assert client.server.user_texts(client.server.turns()[0].session) == ["begin #scn:work", TEXT]
        assert client.turns_ended()[1] == TEXT
        assert terminal.exited() is None


def test_claude_gives_what_is_typed_during_a_tool_turn_to_the_model_in_that_turn(
    client_named: Callable[[str], Client],
) -> None:
    # So it fires no UserPromptSubmit of its own: the receipt of such a message is only in the conversation.
    claude = client_named("claude")
    claude.server.register("held", {"hold": "go", "shell": "true"}, {"text": "over"})
    with claude.terminal("hello") as terminal:
        eventually(lambda: len(claude.turns_ended()) == 1)
        terminal.paste("#scn:held")
        eventually(lambda: "#scn:held" in terminal.screen())
        terminal.keys("Enter")
        eventually(lambda: len(claude.server.turns()) == 2)
        terminal.paste("by the way")
        eventually(lambda: "by the way" in terminal.screen())
        terminal.keys("Enter")
        eventually(lambda: "edit queued messages" in terminal.screen())
        claude.server.release("go")
        eventually(lambda: claude.turns_ended()[1:] == ["over"])
    assert claude.server.user_texts() == ["hello", "#scn:held", "by the way"]
    prompts = [e["prompt"] for e in appended(claude.events) if e["hook_event_name"] == "UserPromptSubmit"]
    assert prompts == ["hello", "#scn:held"]


def test_claude_tells_of_a_turn_that_failed_by_another_hook(client_named: Callable[[str], Client]) -> None:
    claude = client_named("claude")
    mark = claude.server.register("bad", {"error": 400, "message": "the scripted fault"})
    with claude.terminal(mark):
        eventually(lambda: [e for e in appended(claude.events) if e["hook_event_name"] == "StopFailure"])
    assert claude.turns_ended() == []
    assert "the scripted fault" in appended(claude.events)[-1]["last_assistant_message"]


@pytest.mark.slow
def test_opencode_does_the_work(tmp_path: Path, offline: Offline, server: ModelServer) -> None:
    try:
        program = clients.find("opencode")
    except Missing as missing:
        pytest.skip(str(missing))
    home, cwd = tmp_path / "home", tmp_path / "work"
    cwd.mkdir()
    clients.opencode_home(home, server.url)
    _run(offline.argv(program, "run", "write it #scn:work"), cwd, clients.opencode_env(server.url, home))
    assert (cwd / "made.txt").read_text() == "done"
    assert [(r.scenario, r.step) for r in server.turns()] == [("work", 0), ("work", 1)]


@pytest.mark.slow
def test_mini_swe_agent_does_the_work(tmp_path: Path, offline: Offline, server: ModelServer) -> None:
    try:
        program = clients.find("mini")
    except Missing as missing:
        pytest.skip(str(missing))
    home, cwd = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    cwd.mkdir()
    submit = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
    mark = server.register("mini", {"text": "I write it.", "shell": "printf done > made.txt"}, {"shell": submit})
    argv = ["-y", "--exit-immediately", "-m", "openai/scripted-1", "-t", f"write it {mark}", "-o", str(tmp_path / "t")]
    _run(offline.argv(program, *argv), cwd, clients.mini_env(server.url, home))
    assert (cwd / "made.txt").read_text() == "done"
    assert [r.step for r in server.turns()] == [0, 1]


def _run(argv: list[str], cwd: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
