"""Perform each kind of step."""

from __future__ import annotations

import json
import os
import re
import signal
import time

from .files import inside, replace, sealed
from .format import file_mode, signal_number
from .terminal import clean, head_of

TYPE_CHECKING = False  # `typing` itself is not loaded on the host
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .format import Step
    from .player import Player

ENV_CAP = 128_000  # one variable may not pass 128 KiB on Linux


def say(player: Player, text: str, step: Step) -> None:
    text = player.fill_in(text)
    if step.get("typing"):
        size = max(1, len(text) // 40)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        player.term.end_line()
        for piece in pieces:
            player.term.put(clean(piece).encode("utf-8", "replace"))
            player.sleep(step["typing"] / len(pieces))
        player.term.end_line()
        player.term.draw()
    player.assistant(text, step, shown=bool(step.get("typing")))


def run(player: Player, command: str, step: Step) -> None:
    message = player.state["last"].replace("\0", "").encode()[:ENV_CAP].decode("utf-8", "ignore")
    player.emit("tool", name="run", detail=command)
    player.show("$ " + head_of(command))
    code, output = player.commands.run(
        ["sh", "-c", command], timeout=step.get("timeout"), extra={"MESSAGE": message}, shown=True
    )
    player.record_tool("run", command, output, code)
    if code != step.get("expect_exit", code):
        player.fail(f"'{head_of(command)}' ended with {code}, not {step['expect_exit']}")


def write(player: Player, path: str, step: Step) -> None:
    data = player.fill_in(step["text"]).encode("utf-8", "replace")
    player.announce("write", path)
    folder, name = inside(path, make=True)
    try:
        # NOFOLLOW: a symlink may lead out of the work dir; NONBLOCK: opening a fifo must not block
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
            file.write(data)
            if "mode" in step:
                os.fchmod(file.fileno(), file_mode(step["mode"]))
    finally:
        os.close(folder)
    player.record_tool("write", path, f"{len(data)} bytes", 0)


def delete(player: Player, path: str, step: Step) -> None:
    player.announce("delete", path)
    folder, name = inside(path, make=False)
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        if not player.again:
            raise
    finally:
        os.close(folder)
    player.record_tool("delete", path, "", 0)


def patch(player: Player, diff: str, step: Step) -> None:
    names = re.findall(r"^\+\+\+ (?:b/)?(.*)$", diff, re.M)
    detail = ", ".join(names)
    player.announce("patch", detail)
    # Below the top of a repository git counts some paths from the top and silently leaves them out.
    top = {"GIT_CEILING_DIRECTORIES": os.path.dirname(os.getcwd())}
    code, output = player.commands.run(["git", "apply"], given=diff, extra=top)
    if code and player.again:
        code = player.commands.run(["git", "apply", "--reverse", "--check"], given=diff, extra=top)[0]
    player.record_tool("patch", detail, output, code)
    if code:
        player.fail("the patch does not apply: " + output.strip())


def commit(player: Player, message: str, step: Step) -> None:
    paths: list[str] = step.get("paths", [])
    player.announce("commit", message)
    only = ["--", *paths] if paths else []
    code, output = player.commands.run(["git", "add", "-A", *only])
    if code == 0 and player.commands.run(["git", "diff", "--cached", "--quiet", *only])[0] == 0:
        player.record_tool("commit", message, "nothing to commit", 1)
        player.show("nothing to commit")
        return
    if code == 0:
        who = []
        for key, value in (("name", os.environ.get("MUSTER_AGENT") or "replay"), ("email", "replay@localhost")):
            if player.commands.run(["git", "config", "user." + key])[0]:
                who += ["-c", f"user.{key}={value}"]
        argv = ["git", *who, "commit", "--quiet", "--no-gpg-sign", "--message=" + message, *only]
        code, output = player.commands.run(argv)
    player.record_tool("commit", message, output, code)
    if code:
        player.fail("cannot commit: " + output.strip())


def wait(player: Player, seconds: float, step: Step) -> None:
    player.emit("tool", name="wait", detail=f"{seconds:g} s")
    player.sleep(seconds)


def turn(player: Player, text: str, step: Step) -> None:
    if player.state["phase"] == "asked":
        player.emit("ready")
    else:
        if text:
            player.assistant(text, {})
        player.save(phase="asked")
        player.end_turn()
    player.begin_turn(player.next_message(), next=player.state["next"] + 1, phase="")


def ask(player: Player, question: str, step: Step) -> None:
    if player.state["phase"] != "asked":
        player.assistant(question, {})
        player.save(phase="asked")
    player.emit("ask", text=question)
    message = player.next_message()
    player.emit("answered", text=message[:200])
    player.begin_turn(message, next=player.state["next"] + 1, phase="")


def permission(player: Player, detail: str, step: Step) -> int:
    player.pump()  # keys typed before the dialog are no answer to it
    player.dialog, player.answer = True, None
    player.term.show(f"Permission for {step['tool']}\n  {detail}\nDo you want to proceed?\n  1. Yes  2. No")
    player.emit("permission", tool=step["tool"], detail=detail)
    if not player.await_input():
        player.fail("input ended while a permission was asked for")
    player.dialog = False
    allowed = bool(player.answer)
    word = "allowed" if allowed else "denied"
    player.record_tool("permission", f"{step['tool']}: {detail}", word, 0 if allowed else 1)
    player.show("  " + word)
    player.emit("answered", allowed=allowed)
    skip: int = 0 if allowed else step.get("guards", 0)
    if not allowed and step.get("on_deny") == "exit":
        player.save(next=player.state["next"] + 1 + skip, phase="")
        raise SystemExit(1)
    return skip


def expect(player: Player, part: str, step: Step) -> None:
    last: str = player.state["last"]
    wanted = [("with", part)] if part not in last else []
    if "equals" in step and last != step["equals"]:
        wanted.append(("that is", step["equals"]))
    if "matches" in step and not re.search(step["matches"], last):
        wanted.append(("like", step["matches"]))
    for how, text in wanted:
        player.fail(f"expected a message {how} {json.dumps(text)[:200]}, got {json.dumps(last)[:200]}")


def submit(player: Player, outcome: str, step: Step) -> None:
    result = {"version": 1, "outcome": outcome, "summary": step["summary"], "reason": step.get("reason", "")}
    result.update(escalate=step.get("escalate", []), artifacts=step.get("artifacts", []), t=int(time.time()))
    _submit(player, outcome, json.dumps(result, separators=(",", ":")) + "\n")  # one line, as sh/agent/submit.sh


def submit_raw(player: Player, text: str, step: Step) -> None:
    _submit(player, "", text)


def limit(player: Player, text: str, step: Step) -> None:
    if player.state["phase"] != "asked":
        until = time.time() + step["seconds"] if "seconds" in step else None
        player.show(text)
        player.transcribe("error", text)
        player.save(phase="asked", until=until)
    until = player.state["until"]
    player.emit("limit", until=until, text=text)
    if until is None:
        player.begin_turn(player.next_message(), next=player.state["next"] + 1, phase="")
    else:
        player.sleep(until - time.time())
        player.emit("tool", name="limit", detail="over")


def exit_(player: Player, code: int, step: Step) -> None:
    player.save(next=player.state["next"] + 1)
    raise SystemExit(code)


def hang(player: Player, _: bool, step: Step) -> None:
    player.term.deaf = True
    player.emit("tool", name="hang", detail="")
    while True:
        signal.pause()


def crash(player: Player, name: str, step: Step) -> None:
    import resource

    player.save(next=player.state["next"] + 1)
    number = signal_number(name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core file in the work dir
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def title(player: Player, text: str, step: Step) -> None:
    player.term.put(b"\x1b]0;" + clean(text).encode("utf-8", "replace") + b"\x07")
    player.term.draw()


def print_(player: Player, text: str, step: Step) -> None:
    player.term.put(text.replace("\\e", "\x1b").encode("utf-8", "replace"))
    player.term.draw()


def _submit(player: Player, outcome: str, text: str) -> None:
    path = os.environ.get("MUSTER_RESULT")
    if not path:
        player.fail("there is no $MUSTER_RESULT to submit to")
    player.announce("submit", outcome)
    key = os.environ.get("MUSTER_RESULT_KEY")
    if key and text.endswith(("}", "}\n")):
        text = sealed(text.rstrip("\n")[:-1], key)
    replace(path, text.encode("utf-8", "replace"))
    player.record_tool("submit", outcome, "", 0)


#: kind of step -> what performs it; the number that it returns is how many of the following steps are left out
ACTIONS: dict[str, Callable[[Player, Any, Step], int | None]] = {
    "say": say,
    "run": run,
    "write": write,
    "delete": delete,
    "patch": patch,
    "commit": commit,
    "wait": wait,
    "turn": turn,
    "ask": ask,
    "permission": permission,
    "expect": expect,
    "submit": submit,
    "submit_raw": submit_raw,
    "limit": limit,
    "exit": exit_,
    "hang": hang,
    "crash": crash,
    "title": title,
    "print": print_,
}
