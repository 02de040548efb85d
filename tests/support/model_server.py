"""A scripted model: it speaks Anthropic Messages, OpenAI Responses and OpenAI Chat Completions, and says what a test wrote down.

It keeps no conversations. Each request carries its whole conversation, and that alone decides the answer: the last `#scn:NAME`
in the last text of the user names a scenario, and the number of assistant turns since then is the step. So resumed sessions,
retries and a hundred agents at once need nothing more. A text without a mark is echoed.

A scenario is a list of steps; a step is a dict, and so can be sent as JSON:

    text         what the model says
    tools        [{"name": …, "input": {…}}, …] tool calls, by the client's own names for its tools (codex: also GROUP/NAME)
    shell        a command line, called by whichever shell tool the client offers
    delay        seconds before the first byte; word_delay: seconds between words
    hold         a name: the answer waits for `release(name)`
    usage        {"input": …, "output": …, "cache_read": …, "cache_write": …} in tokens; input is what was not cached
    error        a status (400, 401, 429, 529 …) instead of an answer, or "cut": the connection ends halfway
    times        the error is for the first so many requests of this step in a session only; else for every one
    message      the error's text; kind: its type
    retry_after  seconds, as the header; reset: seconds from now, as the rate limit headers of that API; headers: any others

A step with both tools and text says the text first. After its last step a scenario says "done".

    python -m tests.support.model_server --port 8100 [--scenarios FILE.json]

serves until it is ended, for clients in other processes: GET /_log, POST /_scenarios, POST /_release (see `Remote`).
"""

from __future__ import annotations

import argparse
import ctypes
import http.client
import itertools
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Step = dict[str, Any]

# How each client calls the tool that runs a command line, and the argument that holds it.
SHELLS = {"Bash": "command", "exec_command": "cmd", "shell_command": "command", "bash": "command"}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
# What clients themselves put beside the user's words.
BESIDE = re.compile(
    r"<(system-reminder|environment_context|user_instructions|turn_aborted)\b.*</\1>\s*|"
    r"# AGENTS\.md instructions for .*|\[Request interrupted by user[^\]]*\]",
    re.DOTALL,
)
# copilot puts the time in front of the user's words, and what it reminds its model of behind them.
DATED = re.compile(
    r"\A<current_datetime>[^<]*</current_datetime>\s*|\s*<(system_reminder|tagged_files)>.*?</\1>\s*\Z", re.DOTALL
)
# claude gives what the user typed during a turn with tools to the model within that turn, in a message of the system.
MEANWHILE = re.compile(
    r"The user sent a new message while you were working:\n(.*?)\n\nIMPORTANT: After completing your current task, you MUST",
    re.DOTALL,
)
# Clients that send their tools with every turn: without tools it is an errand of their own.
CODERS = {"x-claude-code-session-id", "x-codex-turn-metadata"}
MARK = re.compile(r"#scn:([\w.-]+)")


@dataclass
class Turn:
    """One message of a conversation, in the words of no API in particular."""

    role: str  # user, assistant, tool; aside: the user's words in the middle of a turn, which choose no scenario
    texts: list[str] = field(default_factory=list)


@dataclass
class Request:
    """One request as it came in, and what became of it."""

    time: float
    api: str  # messages, responses, chat; count_tokens, models; "" for an unknown path
    path: str
    session: str
    thread: str  # within the session; "" is the main one, else a subagent
    model: str
    user_texts: list[str]
    tool_results: list[str]
    tools: list[str]
    stream: bool
    side: bool  # the client's own errand (a title for the session), not a turn
    bytes: int
    headers: dict[str, str]
    scenario: str = ""
    step: int = 0
    status: int = 0  # 0 while it is not answered, 200, an error; -1 when the connection was cut
    usage: dict[str, int] = field(default_factory=dict)
    ended: float = 0.0  # when the whole answer was sent; 0 when it was not, as when the client hung up
    noticed: list[str] = field(default_factory=list)  # of the words to watch for, those that stand anywhere in it


@dataclass
class Answer:
    id: str
    model: str
    text: str
    tools: list[tuple[str, str, dict[str, Any]]]  # id, name, input
    usage: dict[str, int]


def user_texts(requests: Iterable[Request], session: str | None = None) -> list[str]:
    """Every text of the user that the model has been given in a session (None: the only one), each as often as it was given.

    The last request of the main thread holds them all; a client that compacts its conversation forgets the former ones.
    """
    turns = [r for r in requests if r.api in APIS and not r.side and not r.thread and session in (None, r.session)]
    if session is None:
        assert len({r.session for r in turns}) <= 1, f"which session? {sorted({r.session for r in turns})}"
    return turns[-1].user_texts if turns else []


# What each API's request says: its conversation, and the names of its tools.


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _texts(content: Any) -> list[str]:
    return [b["text"] for b in _blocks(content) if b.get("type") in ("text", "input_text", "output_text")]


def _users(content: Any) -> Turn:
    """The user's own words; a client that joins two messages ends the first with a newline."""
    own = (DATED.sub("", text) for text in _texts(content))
    return Turn("user", [t.rstrip("\n") for t in own if t.strip() and not BESIDE.fullmatch(t.strip())])


def _read_messages(body: dict[str, Any]) -> tuple[list[Turn], list[str]]:
    turns = []
    for message in body.get("messages", []):
        if message["role"] == "assistant":
            turns.append(Turn("assistant"))
        elif message["role"] == "system":
            turns.append(Turn("aside", MEANWHILE.findall("\n".join(_texts(message["content"])))))
        elif message["role"] == "user":
            results = [b for b in _blocks(message["content"]) if b.get("type") == "tool_result"]
            if results:
                turns.append(Turn("tool", ["\n".join(_texts(b.get("content"))) for b in results]))
            turns.append(_users(message["content"]))
    return turns, [tool.get("name", "") for tool in body.get("tools") or []]


def _read_responses(body: dict[str, Any]) -> tuple[list[Turn], list[str]]:
    turns = []
    items = body.get("input", [])
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        if kind.endswith("_output"):
            output = item.get("output")
            turns.append(Turn("tool", ["\n".join(_texts(output)) if isinstance(output, list) else str(output)]))
        elif kind != "message" or item.get("role") == "assistant":
            turns.append(Turn("assistant"))
        elif item.get("role") == "user":
            turns.append(_users(item.get("content")))
    return turns, [tool.get("name") or tool.get("type", "") for tool in body.get("tools") or []]


def _read_chat(body: dict[str, Any]) -> tuple[list[Turn], list[str]]:
    turns = []
    for message in body.get("messages", []):
        if message["role"] == "assistant":
            turns.append(Turn("assistant"))
        elif message["role"] == "tool":
            turns.append(Turn("tool", ["\n".join(_texts(message["content"]))]))
        elif message["role"] == "user":
            turns.append(_users(message["content"]))
    return turns, [tool.get("function", {}).get("name", "") for tool in body.get("tools") or []]


# What each API's answer looks like, whole and as a stream of (event, data, is a word).

Events = Iterator[tuple[str, dict[str, Any], bool]]


def _whole_messages(a: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": a.text}] if a.text else []
    content += [{"type": "tool_use", "id": id, "name": name, "input": input} for id, name, input in a.tools]
    return {
        "id": f"msg_{a.id}",
        "type": "message",
        "role": "assistant",
        "model": a.model,
        "content": content,
        "stop_reason": "tool_use" if a.tools else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": a.usage["input"],
            "output_tokens": a.usage["output"],
            "cache_creation_input_tokens": a.usage["cache_write"],
            "cache_read_input_tokens": a.usage["cache_read"],
        },
    }


def _stream_messages(a: Answer, words: list[str]) -> Events:
    whole = _whole_messages(a)
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    yield "message_start", {"message": start}, False
    yield "ping", {}, False
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            yield "content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}}, False
            for word in words:
                yield "content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": word}}, True
        else:
            yield "content_block_start", {"index": index, "content_block": {**block, "input": {}}}, False
            part = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            yield "content_block_delta", {"index": index, "delta": part}, True
        yield "content_block_stop", {"index": index}, False
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield "message_delta", {"delta": end, "usage": whole["usage"]}, False
    yield "message_stop", {}, False


def _message_item(a: Answer, text: str, status: str) -> dict[str, Any]:
    part = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"id": f"msg_{a.id}", "type": "message", "role": "assistant", "status": status, "content": part}


def _whole_responses(a: Answer) -> dict[str, Any]:
    output = [_message_item(a, a.text, "completed")] if a.text else []
    for id, name, input in a.tools:
        group, _, own = name.rpartition("/")
        call = {"type": "function_call", "call_id": id, "name": own, "arguments": json.dumps(input)}
        call |= {"namespace": group} if group else {}
        output.append({"id": f"fc_{id}", "status": "completed", **call})
    total = a.usage["input"] + a.usage["cache_read"] + a.usage["cache_write"]
    return {
        "id": f"resp_{a.id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed",
        "model": a.model,
        "output": output,
        "usage": {
            "input_tokens": total,
            "input_tokens_details": {
                "cached_tokens": a.usage["cache_read"],
                "cache_write_tokens": a.usage["cache_write"],
            },
            "output_tokens": a.usage["output"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": total + a.usage["output"],
        },
    }


def _stream_responses(a: Answer, words: list[str]) -> Events:
    whole = _whole_responses(a)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}, False
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            yield "response.output_item.added", {**at, "item": _message_item(a, "", "in_progress")}, False
            part = {**at, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield "response.content_part.added", {**part, "part": empty}, False
            for word in words:
                yield "response.output_text.delta", {**part, "delta": word}, True
            yield "response.output_text.done", {**part, "text": a.text}, False
            yield "response.content_part.done", {**part, "part": item["content"][0]}, False
        else:
            yield "response.output_item.added", {**at, "item": {**item, "arguments": ""}}, False
            yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}, True
            yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"]}, False
        yield "response.output_item.done", {**at, "item": item}, False
    yield "response.completed", {"response": whole}, False


def _whole_chat(a: Answer) -> dict[str, Any]:
    total = a.usage["input"] + a.usage["cache_read"] + a.usage["cache_write"]
    message: dict[str, Any] = {"role": "assistant", "content": a.text or None}
    if a.tools:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(input)}}
            for id, name, input in a.tools
        ]
    return {
        "id": f"chatcmpl-{a.id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": a.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if a.tools else "stop"}],
        "usage": {
            "prompt_tokens": total,
            "completion_tokens": a.usage["output"],
            "total_tokens": total + a.usage["output"],
            "prompt_tokens_details": {"cached_tokens": a.usage["cache_read"]},
        },
    }


def _stream_chat(a: Answer, words: list[str]) -> Events:
    whole = _whole_chat(a)
    chunk = {**{k: whole[k] for k in ("id", "created", "model")}, "object": "chat.completion.chunk"}

    def delta(reason: str | None = None, **change: Any) -> dict[str, Any]:
        return {**chunk, "choices": [{"index": 0, "delta": change, "finish_reason": reason}]}

    yield "", delta(role="assistant", content=""), False
    for word in words:
        yield "", delta(content=word), True
    for index, call in enumerate(whole["choices"][0]["message"].get("tool_calls", [])):
        yield "", delta(tool_calls=[{"index": index, **call}]), True
    yield "", delta(whole["choices"][0]["finish_reason"]), False
    yield "", {**chunk, "choices": [], "usage": whole["usage"]}, False


@dataclass(frozen=True)
class Api:
    read: Callable[[dict[str, Any]], tuple[list[Turn], list[str]]]
    whole: Callable[[Answer], dict[str, Any]]
    stream: Callable[[Answer, list[str]], Events]


APIS = {
    "messages": Api(_read_messages, _whole_messages, _stream_messages),
    "responses": Api(_read_responses, _whole_responses, _stream_responses),
    "chat": Api(_read_chat, _whole_chat, _stream_chat),
}
PATHS = {
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "count_tokens",
    "/v1/responses": "responses",
    "/v1/chat/completions": "chat",
    "/v1/models": "models",
}


class ModelServer:
    """The server, in this process; `with` starts and ends it.

    `netns` is the path of a network namespace (`Offline.path`): clients inside of it reach the server, and nobody else does.
    """

    def __init__(
        self, scenarios: dict[str, list[Step]] | None = None, *, port: int = 0, netns: str | None = None
    ) -> None:
        self.scenarios: dict[str, list[Step]] = dict(scenarios or {})
        self.requests: list[Request] = []
        self.watch: list[str] = []
        """Words to look for in all of a request, its credentials included; see `Request.noticed`."""
        self.refused: list[str] = []
        """Of these words, those whose requests are answered with 401."""
        self.cues: dict[str, str] = {}
        """Words that name a scenario where a text of the user has them and no mark."""
        self._lock = threading.Lock()
        self._failed: dict[tuple[str, int, str, int], int] = {}
        self._held: dict[str, threading.Event] = {}
        self._ids = itertools.count(1)
        self._over = threading.Event()
        self._http = _Http(_listen(port, netns), self)
        self.port: int = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for name in list(self._held):
            self.release(name)
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def register(self, name: str, *steps: Step) -> str:
        """Add a scenario; returns the mark to write into a prompt."""
        self.scenarios[name] = list(steps)
        return f"#scn:{name}"

    def release(self, name: str) -> None:
        """Let every answer go that is or will be held by this name."""
        self._event(name).set()

    def user_texts(self, session: str | None = None) -> list[str]:
        return user_texts(self.requests, session)

    def turns(self, session: str | None = None) -> list[Request]:
        """The requests of a session that asked the model for a turn."""
        return [r for r in self.requests if r.api in APIS and not r.side and session in (None, r.session)]

    def _event(self, name: str) -> threading.Event:
        with self._lock:
            return self._held.setdefault(name, threading.Event())

    def _record(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)

    def _step(self, request: Request, turns: list[Turn]) -> Step:
        """What the script says to this conversation."""
        last = max((i for i, turn in enumerate(turns) if turn.role == "user" and turn.texts), default=-1)
        text = "\n".join(turns[last].texts) if last >= 0 else ""
        marks = MARK.findall(text) or [name for words, name in self.cues.items() if words in text]
        if not marks:
            return {"text": text or "nothing was said"}
        roles = [turn.role for turn in turns[last:] if turn.role in ("assistant", "tool")]
        request.scenario = marks[-1]
        # One turn of the model may be several items (a text, then its tool calls).
        request.step = sum(1 for role, _ in itertools.groupby(roles) if role == "assistant")
        steps = self.scenarios.get(request.scenario)
        if steps is None:
            return {"error": 400, "message": f"no scenario {request.scenario} here"}
        step: Step = steps[request.step] if request.step < len(steps) else {"text": "done"}
        if "error" not in step or "times" not in step:
            return step
        with self._lock:
            key = (request.session, len(request.user_texts), request.scenario, request.step)
            self._failed[key] = self._failed.get(key, 0) + 1
            enough = self._failed[key] > step["times"]
        return {k: v for k, v in step.items() if k != "error"} if enough else step

    def _answer(self, request: Request, step: Step) -> Answer:
        id = f"{next(self._ids):08d}"
        calls = list(step.get("tools", []))
        if "shell" in step:
            tool = next((name for name in SHELLS if name in request.tools), "bash")
            calls.append({"name": tool, "input": {SHELLS[tool]: step["shell"]}})
            if tool in ("Bash", "bash"):
                calls[-1]["input"]["description"] = "run a command"
        text = step.get("text", "" if calls else "done")
        usage = {"input": 10, "output": max(1, len(text.split())), "cache_read": 0, "cache_write": 0}
        request.usage = {**usage, **step.get("usage", {})}
        tools = [(f"toolu_{id}_{i}", call["name"], call["input"]) for i, call in enumerate(calls)]
        return Answer(id, request.model, text, tools, request.usage)


def _listen(port: int, netns: str | None) -> socket.socket:
    """A listening socket on loopback. It stays in the namespace in which it was made, whoever accepts on it."""
    made: list[socket.socket] = []

    def make() -> None:
        if netns:
            enter(netns)
        made.append(socket.create_server(("127.0.0.1", port), backlog=256))

    if netns:
        thread = threading.Thread(target=make)  # only this thread changes its namespace, and it ends here
        thread.start()
        thread.join()
        assert made, f"no socket in {netns}"
    else:
        make()
    return made[0]


def enter(netns: str) -> None:
    """Move this thread into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(fd, 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"setns {netns}")
    finally:
        os.close(fd)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, model: ModelServer) -> None:
        super().__init__(listening.getsockname(), _Talk, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_address = listening.getsockname()
        self.model = model

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up is a matter of the log (`ended` stays 0); anything else is a bug in this file.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Talk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/_log":
            self._json(200, [asdict(request) for request in list(self.server.model.requests)])
        elif path in ("/", "/v1/models"):
            if path != "/":
                self._note({}, b"").status = 200
            self._json(200, {"object": "list", "data": [], "models": []})
        else:
            self._unknown(b"")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        model = self.server.model
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            self._error(self._note({}, raw), {"error": 400, "message": "the body is no JSON"})
            return
        if path == "/_scenarios":
            model.scenarios.update(body)
            self._json(200, sorted(model.scenarios))
        elif path == "/_release":
            model.release(body["name"])
            self._json(200, {})
        elif path == "/v1/messages/count_tokens":
            self._note(body, raw).status = 200
            self._json(200, {"input_tokens": len(raw) // 4})
        elif PATHS.get(path) in APIS:
            self._turn(body, raw)
        else:
            self._unknown(raw)

    def _note(self, body: dict[str, Any], raw: bytes) -> Request:
        """Into the log with it."""
        api = PATHS.get(self.path.partition("?")[0], "")
        turns, tools = APIS[api].read(body) if api in APIS else ([], [])
        heads = {k.lower(): v for k, v in self.headers.items() if k.lower() not in ("authorization", "x-api-key")}
        named = (
            heads.get(name) for name in ("x-claude-code-session-id", "session-id", "x-session-affinity", "x-session-id")
        )
        session = next(filter(None, named), "")
        thread = heads.get("thread-id", session)
        request = Request(
            time=time.time(),
            api=api,
            path=self.path,
            session=session,
            thread=heads.get("x-claude-code-agent-id") or (thread if thread != session else ""),
            model=str(body.get("model", "")),
            user_texts=[text for turn in turns if turn.role in ("user", "aside") for text in turn.texts],
            tool_results=[text for turn in turns if turn.role == "tool" for text in turn.texts],
            tools=tools,
            stream=bool(body.get("stream")),
            side=not tools and (bool(heads.keys() & CODERS) or _titles(body)),
            bytes=len(raw),
            headers=heads,
        )
        everything = f"{list(self.headers.values())}{raw.decode(errors='replace')}"
        request.noticed = [word for word in self.server.model.watch if word in everything]
        self.server.model._record(request)
        return request

    def _turn(self, body: dict[str, Any], raw: bytes) -> None:
        model = self.server.model
        request = self._note(body, raw)
        api = APIS[request.api]
        step = _title(body) if request.side else model._step(request, api.read(body)[0])
        if set(request.noticed) & set(model.refused):
            step = {"error": 401}
        if "hold" in step:
            model._event(step["hold"]).wait()
        model._over.wait(step.get("delay", 0))
        if model._over.is_set():
            self.close_connection = True
            return
        if isinstance(step.get("error"), int):
            self._error(request, step)
            return
        answer = model._answer(request, step)
        request.status = -1 if step.get("error") == "cut" else 200
        if not request.stream:
            whole = json.dumps(api.whole(answer)).encode()
            self._send(200, whole, len(whole) if request.status == 200 else len(whole) // 2)
        else:
            self._stream(api, answer, step)
        if request.status == 200:
            request.ended = time.time()

    def _stream(self, api: Api, answer: Answer, step: Step) -> None:
        cut = step.get("error") == "cut"
        pause = step.get("word_delay", 0)
        words = re.findall(r"\s*\S+\s*$|\s*\S+", answer.text) if cut or pause else [answer.text]
        left = max(1, len(words) // 2) if cut else -1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("request-id", f"req_{answer.id}")
        self.end_headers()
        for event, data, is_word in api.stream(answer, words if answer.text else []):
            if is_word and left == 0:
                self._hang_up()
                return
            left -= is_word
            if event:
                data = {"type": event, **data}
            self._chunk(f"event: {event}\n" if event else "", json.dumps(data))
            if is_word and pause:
                self.server.model._over.wait(pause)
        if cut:
            self._hang_up()
            return
        if api is APIS["chat"]:
            self._chunk("", "[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: str, data: str) -> None:
        part = f"{event}data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _error(self, request: Request, step: Step) -> None:
        request.status = step["error"]
        kind = step.get("kind") or KINDS.get(request.status, "api_error")
        error = {"type": kind, "message": step.get("message", f"scripted {request.status}")}
        heads = dict(step.get("headers", {}))
        if "retry_after" in step:
            heads["retry-after"] = str(step["retry_after"])
        if "reset" in step:
            heads |= _reset_headers(request.api, step["reset"])
        if request.api in ("responses", "chat"):
            self._json(request.status, {"error": {**error, "code": kind, "param": None}}, heads)
        else:
            self._json(request.status, {"type": "error", "error": error, "request_id": "req_scripted"}, heads)
        request.ended = time.time()

    def _unknown(self, raw: bytes) -> None:
        self._error(self._note({}, raw), {"error": 404, "message": f"no {self.path} here"})

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._send(status, body, headers={"content-type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, only: int | None = None, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {"content-type": "application/json"}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:only])
        if only is not None and only < len(body):
            self._hang_up()


def _titles(body: dict[str, Any]) -> bool:
    """opencode asks for a title of the session in a call of its own."""
    return any("title generator" in str(m.get("content")) for m in body.get("messages", []) if m["role"] == "system")


def _title(body: dict[str, Any]) -> Step:
    as_json = "format" in (body.get("output_config") or body.get("text") or {})
    return {"text": '{"title": "Scripted"}' if as_json else "Scripted"}


def _reset_headers(api: str, seconds: float) -> dict[str, str]:
    at = time.time() + seconds
    if api != "messages":
        return {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": f"{seconds:g}s"}
    return {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-reset": str(int(at)),
    }


class Remote:
    """A server in another process: the same words as `ModelServer` for what a test asks of it."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def requests(self) -> list[Request]:
        return [Request(**row) for row in self._ask("GET", "/_log")]

    def register(self, name: str, *steps: Step) -> str:
        self._ask("POST", "/_scenarios", {name: list(steps)})
        return f"#scn:{name}"

    def release(self, name: str) -> None:
        self._ask("POST", "/_release", {"name": name})

    def user_texts(self, session: str | None = None) -> list[str]:
        return user_texts(self.requests, session)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="model_server", description="A scripted model on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--scenarios", type=Path, help="a JSON file: {name: [step, …], …}")
    given = parser.parse_args()
    scenarios = json.loads(given.scenarios.read_text(encoding="utf-8")) if given.scenarios else {}
    with ModelServer(scenarios, port=given.port) as server:
        print(server.url, flush=True)
        try:
            server._thread.join()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
