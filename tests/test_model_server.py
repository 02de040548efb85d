"""The scripted model server, spoken to in plain HTTP: what clients are given, and what it says it was given."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import eventually
from .support.model_server import APIS, ModelServer, Remote

ROOT = Path(__file__).parent.parent
PATHS = {"messages": "/v1/messages?beta=true", "responses": "/v1/responses", "chat": "/v1/chat/completions"}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


class Talk:
    """A conversation with the server in one of the APIs, kept as a client keeps it: the whole of it goes with every request."""

    def __init__(self, url: str, api: str, stream: bool, session: str = "s1") -> None:
        self.host = url.removeprefix("http://")
        self.api, self.stream, self.session = api, stream, session
        self.history: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}

    def say(self, text: str) -> dict[str, Any]:
        self.history.append({"role": "user", "content": text})
        return self.ask()

    def ask(self) -> dict[str, Any]:
        """The answer in one form for all: status, text, tools [(name, input)], usage; an error as its type and message."""
        tools: dict[str, Any] = {
            "messages": [{"name": "Bash", "input_schema": {}}],
            "responses": [{"type": "function", "name": "exec_command"}],
            "chat": [{"type": "function", "function": {"name": "bash"}}],
        }
        body = {"model": "scripted-1", "stream": self.stream, "tools": tools[self.api]}
        body["input" if self.api == "responses" else "messages"] = self.history
        connection = http.client.HTTPConnection(self.host, timeout=20)
        try:
            connection.request("POST", PATHS[self.api], json.dumps(body), {"session-id": self.session})
            answer = connection.getresponse()
            self.headers = {k.lower(): v for k, v in answer.getheaders()}
            raw = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            return {"status": answer.status, **json.loads(raw)["error"]}
        return {"status": 200, **(self._streamed(raw.decode()) if self.stream else self._whole(json.loads(raw)))}

    def _whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        if self.api == "messages":
            self.history.append({"role": "assistant", "content": answer["content"]})
            texts = [b["text"] for b in answer["content"] if b["type"] == "text"]
            tools = [(b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"]
            for block in answer["content"]:
                if block["type"] == "tool_use":
                    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "it ran"}
                    self.history.append({"role": "user", "content": [result]})
            return {"text": "".join(texts), "tools": tools, "usage": answer["usage"], "end": answer["stop_reason"]}
        if self.api == "responses":
            texts = [i["content"][0]["text"] for i in answer["output"] if i["type"] == "message"]
            calls = [i for i in answer["output"] if i["type"] == "function_call"]
            self.history += answer["output"]
            for call in calls:
                self.history.append({"type": "function_call_output", "call_id": call["call_id"], "output": "it ran"})
            tools = [(c["name"], json.loads(c["arguments"])) for c in calls]
            return {"text": "".join(texts), "tools": tools, "usage": answer["usage"], "end": answer["status"]}
        choice = answer["choices"][0]
        self.history.append(choice["message"])
        calls = choice["message"].get("tool_calls", [])
        self.history += [{"role": "tool", "tool_call_id": c["id"], "content": "it ran"} for c in calls]
        tools = [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]
        text = choice["message"]["content"] or ""
        return {"text": text, "tools": tools, "usage": answer["usage"], "end": choice["finish_reason"]}

    def _streamed(self, raw: str) -> dict[str, Any]:
        """Put the whole answer together from its events, as each API says to."""
        events = []
        for part in raw.strip().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in part.split("\n"))
            if lines["data"] != "[DONE]":
                events.append(json.loads(lines["data"]))
                assert lines.get("event") == events[-1].get("type")
        if self.api == "responses":
            whole = events[-1]["response"]
            assert events[-1]["type"] == "response.completed"
            deltas = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
            assert deltas == "".join(i["content"][0]["text"] for i in whole["output"] if i["type"] == "message")
            done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
            assert done == whole["output"]
            return self._whole(whole)
        if self.api == "chat":
            assert raw.endswith("data: [DONE]\n\n")
            message: dict[str, Any] = {"role": "assistant", "content": ""}
            reason = None
            for event in events:
                for choice in event["choices"]:
                    message["content"] += choice["delta"].get("content") or ""
                    for call in choice["delta"].get("tool_calls", []):
                        message.setdefault("tool_calls", []).append({k: v for k, v in call.items() if k != "index"})
                    reason = choice["finish_reason"] or reason
            choices = [{"message": message, "finish_reason": reason}]
            return self._whole({"choices": choices, "usage": events[-1]["usage"]})
        assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
        content: list[dict[str, Any]] = []
        end: dict[str, Any] = {}
        for event in events:
            if event["type"] == "content_block_start":
                assert event["index"] == len(content)
                content.append(event["content_block"])
            elif event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
                content[event["index"]]["text"] += event["delta"]["text"]
            elif event["type"] == "content_block_delta":
                content[event["index"]]["input"] = json.loads(event["delta"]["partial_json"])
            elif event["type"] == "message_delta":
                end = event
        return self._whole({"content": content, "usage": end["usage"], "stop_reason": end["delta"]["stop_reason"]})


@pytest.fixture(params=[(api, stream) for api in APIS for stream in (True, False)], ids=lambda p: f"{p[0]}-{p[1]}")
def talk(request: pytest.FixtureRequest, server: ModelServer) -> Talk:
    api, stream = request.param
    return Talk(server.url, api, stream)


def test_a_text_without_a_mark_is_echoed_whole(server: ModelServer, talk: Talk) -> None:
    text = "two lines\n\twith 'quotes', $x `y` \\ and — ünïcode"
    assert talk.say(text)["text"] == text
    assert server.user_texts() == [text]


def test_a_scenario_goes_step_by_step_and_the_conversation_alone_says_where_it_is(
    server: ModelServer, talk: Talk
) -> None:
    mark = server.register(
        "work",
        {"text": "first", "shell": "echo 1", "tools": [{"name": "Other", "input": {"a": [1]}}]},
        {"shell": "echo 2"},
        {"text": "all good"},
    )
    first = talk.say(f"please {mark} now")
    shell, argument = {
        "messages": ("Bash", "command"),
        "responses": ("exec_command", "cmd"),
        "chat": ("bash", "command"),
    }[talk.api]
    assert first["text"] == "first"
    assert [name for name, _ in first["tools"]] == ["Other", shell]
    assert first["tools"][0][1] == {"a": [1]}
    assert first["tools"][1][1][argument] == "echo 1"
    assert first["end"] in ("tool_use", "completed", "tool_calls")
    assert talk.ask()["tools"][0][1][argument] == "echo 2"
    third = talk.ask()
    assert (third["text"], third["tools"]) == ("all good", [])
    assert third["end"] in ("end_turn", "completed", "stop")
    assert talk.ask()["text"] == "done"  # past its end
    assert talk.say("and without?")["text"] == "and without?"
    assert talk.say(f"again {mark}")["text"] == "first"
    assert [(r.scenario, r.step, r.status) for r in server.turns()] == [
        ("work", 0, 200),
        ("work", 1, 200),
        ("work", 2, 200),
        ("work", 3, 200),
        ("", 0, 200),
        ("work", 0, 200),
    ]
    assert server.turns()[-1].tool_results == ["it ran"] * 3
    assert server.user_texts("s1") == [f"please {mark} now", "and without?", f"again {mark}"]


def test_the_last_mark_counts(server: ModelServer, talk: Talk) -> None:
    server.register("one", {"text": "1"})
    server.register("two", {"text": "2"})
    assert talk.say("#scn:one or #scn:two")["text"] == "2"


def test_usage_is_as_written_down(server: ModelServer, talk: Talk) -> None:
    server.register("u", {"text": "x", "usage": {"input": 7, "output": 9, "cache_read": 11, "cache_write": 13}})
    usage = talk.say("#scn:u")["usage"]
    if talk.api == "messages":
        assert usage == {
            "input_tokens": 7,
            "output_tokens": 9,
            "cache_read_input_tokens": 11,
            "cache_creation_input_tokens": 13,
        }
    elif talk.api == "responses":
        assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (31, 9, 40)
        assert usage["input_tokens_details"] == {"cached_tokens": 11, "cache_write_tokens": 13}
    else:
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (31, 9, 40)
        assert usage["prompt_tokens_details"] == {"cached_tokens": 11}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (529, "overloaded_error"),
    ],
)
def test_errors(server: ModelServer, talk: Talk, status: int, kind: str) -> None:
    server.register("bad", {"error": status, "message": "as scripted"})
    for _ in range(2):
        said = talk.ask() if talk.history else talk.say("#scn:bad")
        assert (said["status"], said["type"], said["message"]) == (status, kind, "as scripted")
    assert not any("reset" in name or name == "retry-after" for name in talk.headers)
    assert [r.status for r in server.turns()] == [status, status]


def test_a_rate_limit_tells_when_it_ends_if_it_is_to(server: ModelServer, talk: Talk) -> None:
    server.register("limit", {"error": 429, "retry_after": 3, "reset": 60, "headers": {"x-own": "1"}})
    before = int(time.time())
    assert talk.say("#scn:limit")["status"] == 429
    assert talk.headers["retry-after"] == "3"
    assert talk.headers["x-own"] == "1"
    if talk.api == "messages":
        assert before + 59 <= int(talk.headers["anthropic-ratelimit-unified-reset"]) <= time.time() + 61
    else:
        assert talk.headers["x-ratelimit-reset-requests"] == "60s"


def test_an_error_for_the_first_requests_only_counts_for_each_session_and_message(
    server: ModelServer, talk: Talk
) -> None:
    server.register("busy", {"error": 529, "times": 3, "text": "at last"})
    other = Talk(server.url, talk.api, talk.stream, session="s2")
    assert [talk.say("#scn:busy")["status"], *(talk.ask()["status"] for _ in range(3))] == [529, 529, 529, 200]
    assert other.say("#scn:busy")["status"] == 529
    assert talk.say("#scn:busy")["status"] == 529  # said anew, it fails anew
    assert server.user_texts("s1") == ["#scn:busy"] * 2


def test_a_connection_is_cut_halfway(server: ModelServer, talk: Talk) -> None:
    server.register("cut", {"error": "cut", "times": 1, "text": "one two three four"})
    with pytest.raises(http.client.IncompleteRead) as cut:
        talk.say("#scn:cut")
    if talk.stream:
        assert b"one" in cut.value.partial
        assert b"three" not in cut.value.partial
    assert talk.ask()["text"] == "one two three four"
    eventually(lambda: server.turns()[-1].ended)
    assert [(r.status, r.ended > 0) for r in server.turns()] == [(-1, False), (200, True)]


def test_words_come_one_by_one(server: ModelServer) -> None:
    server.register("slow", {"text": "one two  three\n", "word_delay": 0.05, "delay": 0.1})
    start = time.monotonic()
    assert Talk(server.url, "messages", stream=True).say("#scn:slow")["text"] == "one two  three\n"
    assert time.monotonic() - start >= 0.25


def test_an_answer_is_held_until_it_is_released(server: ModelServer) -> None:
    server.register("held", {"text": "here", "hold": "go"})
    said: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: said.append(Talk(server.url, "chat", stream=True).say("#scn:held")))
    thread.start()
    eventually(server.turns)
    assert (server.turns()[0].status, said) == (0, [])
    server.release("go")
    thread.join()
    assert said[0]["text"] == "here"


def test_the_end_of_the_server_ends_what_it_holds() -> None:
    failed: list[Exception] = []

    def ask() -> None:
        try:
            Talk(server.url, "chat", stream=True).say("#scn:held")
        except (OSError, http.client.HTTPException) as error:
            failed.append(error)

    with ModelServer({"held": [{"hold": "never"}]}) as server:
        thread = threading.Thread(target=ask)
        thread.start()
        eventually(server.turns)
    thread.join(10)
    assert failed


def test_many_sessions_at_once_do_not_mix(server: ModelServer) -> None:
    server.register("work", {"shell": "true"}, {"text": "over"})

    def work(number: int) -> None:
        talk = Talk(server.url, list(APIS)[number % 3], stream=True, session=f"s{number}")
        talk.say(f"#scn:work {number}")
        talk.ask()
        talk.say(f"thanks {number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(30):
        assert server.user_texts(f"s{number}") == [f"#scn:work {number}", f"thanks {number}"]


def test_an_unknown_scenario_is_named(server: ModelServer, talk: Talk) -> None:
    said = talk.say("#scn:nowhere")
    assert (said["status"], said["message"]) == (400, "no scenario nowhere here")


def _post(server: ModelServer, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", path, body if isinstance(body, str) else json.dumps(body), sent)
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, said


def test_what_clients_put_beside_the_users_words_is_left_out(server: ModelServer) -> None:
    reminder = "<system-reminder>\nremember\n</system-reminder>"
    meanwhile = (
        "The user sent a new message while you were working:\nand {}\n\n"
        "IMPORTANT: After completing your current task, you MUST address the user's message above. Do not ignore it."
    )
    server.register("work", {"text": "one"}, {"text": "two"})
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [{"type": "text", "text": reminder}, {"type": "text", "text": "the work #scn:work"}],
        },
        {"role": "system", "content": "agents are available"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": reminder}]},
        {"role": "system", "content": "\n\n".join([meanwhile.format("this"), meanwhile.format("that\ntoo")])},
    ]
    body = {"model": "m", "messages": messages, "tools": [{"name": "Bash"}]}
    assert _post(server, "/v1/messages", body)[1]["content"][0]["text"] == "two"
    assert server.user_texts() == ["the work #scn:work", "and this", "and that\ntoo"]
    kept = f"see: {reminder}"  # the user's own
    assert (
        _post(server, "/v1/messages", {"messages": [{"role": "user", "content": kept}]})[1]["content"][0]["text"]
        == kept
    )

    context = "<environment_context>\n<cwd>/</cwd>\n</environment_context>"
    items = [
        {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}
        for role, text in [("developer", "be good"), ("user", context), ("user", "mine")]
    ]
    _post(server, "/v1/responses", {"input": items}, session_id="r")
    assert server.user_texts("r") == ["mine"]


def test_a_clients_own_errand_is_no_turn(server: ModelServer) -> None:
    server.register("work", {"shell": "true"})
    messages = [{"role": "user", "content": "title of: #scn:work"}]
    body = {"messages": messages, "output_config": {"format": {"type": "json_schema"}}}
    said = _post(server, "/v1/messages", body, x_claude_code_session_id="c")[1]
    assert json.loads(said["content"][0]["text"]) == {"title": "Scripted"}
    said = _post(server, "/v1/responses", {"input": "title of: #scn:work"}, x_codex_turn_metadata="{}")[1]
    assert said["output"][0]["content"][0]["text"] == "Scripted"
    assert (server.turns(), server.user_texts(), len(server.requests)) == ([], [], 2)


def test_a_subagent_is_a_thread_of_its_own(server: ModelServer) -> None:
    def ask(text: str, **headers: str) -> None:
        body = {"messages": [{"role": "user", "content": text}], "tools": [{"name": "Bash"}]}
        _post(server, "/v1/messages", body, x_claude_code_session_id="c", **headers)

    ask("mine")
    ask("the subagent's", x_claude_code_agent_id="a1")
    assert server.user_texts("c") == ["mine"]


def test_the_other_paths(server: ModelServer) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.request("GET", "/v1/models")  # on the same connection
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["data"]) == (200, [])
    connection.close()
    assert _post(server, "/v1/messages/count_tokens", {"messages": []})[1]["input_tokens"] > 0
    assert _post(server, "/v1/nothing", {})[0] == 404
    assert _post(server, "/v1/messages", "{no json")[0] == 400
    assert [(r.api, r.status) for r in server.requests] == [
        ("models", 200),
        ("count_tokens", 200),
        ("", 404),
        ("messages", 400),
    ]


def test_no_key_is_kept(server: ModelServer) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    _post(server, "/v1/messages", body, authorization="Bearer secret", x_api_key="secret")
    assert "secret" not in repr(server.requests)


def test_as_a_process_of_its_own(tmp_path: Path) -> None:
    scenarios = tmp_path / "scenarios.json"
    scenarios.write_text(json.dumps({"given": [{"text": "from the file"}]}), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.model_server", "--port", "0", "--scenarios", str(scenarios)],
        cwd=ROOT,
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        remote = Remote(process.stdout.readline().strip())
        assert remote.register("later", {"text": "held back", "hold": "x"}) == "#scn:later"
        talk = Talk(remote.url, "responses", stream=True)
        assert talk.say("#scn:given")["text"] == "from the file"
        remote.release("x")
        assert talk.say("#scn:later")["text"] == "held back"
        assert remote.user_texts("s1") == ["#scn:given", "#scn:later"]
        assert [r.scenario for r in remote.requests] == ["given", "later"]
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
