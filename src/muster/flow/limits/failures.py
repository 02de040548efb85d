"""Classifies failures: of what kind each is, which are alike, what is to blame, and when a task is tried again.

Pure: time and random numbers come in. The texts of failures are hostile input: they are bounded and never executed, and no text of an
agent can make a task wait or be retried for ever.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...cast import strip
from ...errors import MusterError, NotFound, Refused, Stuck, TimedOut, Unreachable, UsageError

STAGES = ("plan", "create", "launch", "start", "work", "result", "harvest", "stop")
#: The stages before an agent works on its task.
LAUNCHING = frozenset(STAGES[:4])
#: The stages whose errors come from muster, git, tmux and ssh, not from an agent.
OURS = LAUNCHING | {"harvest", "stop"}
CAUSES = ("code", "environment", "limits")
BLAMES = ("task", "agent", "host", "provider", "limit", "muster")

#: Characters of the text that are kept: the beginning and, three times as much, the end.
TEXT_CAP = 4000
#: Characters of a line that are compared.
LINE_CAP = 400
MASK_CAP = 1 << 16
#: No wait is longer, whatever a text says: the longest quota window is a week.
LONGEST_WAIT = 8 * 86400.0
#: The longest wait for a reset that only an agent's text names.
WORDS_LONGEST = 3600.0
#: Tasks that wait for the same moment begin spread over this many seconds.
SPREAD = 60.0
#: Version of the fingerprints. Increase it when the masks or the choice of the line change.
FINGERPRINT = 1


# Kinds of failure


class Kind(NamedTuple):
    blame: str
    words: str
    """Its description in messages."""
    tries: int = 0
    """How often a task may be retried after it."""
    wait: float = 5.0
    """Seconds before the first retry; doubles with each further one, up to `most`."""
    most: float = 600.0
    counts: bool = True
    """False for limits, which are waited for and use up no retry."""
    one: bool = False
    """All failures of this kind have one cause, so their texts are not compared."""


KINDS: dict[str, Kind] = {
    "disk-full": Kind("host", "no space left for the agent", 3, 60, one=True),
    "no-memory": Kind("host", "out of memory", 2, 60, one=True),
    "no-right": Kind("host", "no right to write there"),
    "host-unreachable": Kind("host", "the host does not answer", 5, 15, 300, one=True),
    "host-refuses": Kind("host", "the host lets nobody in", one=True),
    "host-busy": Kind("host", "the host has no process, file or terminal left", 3, 30, one=True),
    "not-installed": Kind("host", "a program is missing"),
    "tmux": Kind("host", "tmux failed", 2),
    "lost": Kind("host", "the agent is gone", 2, one=True),
    "killed": Kind("host", "somebody ended the process", 1),
    "network": Kind("host", "the client does not reach its provider", 4, 15, 300, one=True),
    "auth": Kind("provider", "the login is not valid", one=True),
    "bad-request": Kind("provider", "the provider refuses the request"),
    "provider-error": Kind("provider", "the provider failed", 4, 15, 300, one=True),
    "overload": Kind("provider", "the provider is overloaded", 10, 20, 600, counts=False, one=True),
    "rate-limit": Kind("limit", "too many requests", 8, 30, 900, counts=False, one=True),
    "quota": Kind("limit", "the usage limit is reached", 8, 900, 3600, counts=False, one=True),
    "budget": Kind("limit", "the budget is spent", counts=False, one=True),
    # Waiting does not help, so it counts and opens the breaker.
    "credit": Kind("limit", "there is no credit left", one=True),
    "crash": Kind("agent", "the agent crashed", 1),
    "early-exit": Kind("agent", "the agent ended before it was ready", 1),
    "turn": Kind("agent", "the agent's turn failed", 2, 15),
    "no-answer": Kind("agent", "the agent gave no sign", 2),
    "stall": Kind("agent", "no sign of work for a long time", 1, one=True),
    "dialog": Kind("agent", "a dialog is open"),
    "question": Kind("agent", "the agent asks a question", one=True),
    "permission": Kind("agent", "the agent waits for a permission", one=True),
    "no-result": Kind("agent", "no result was submitted", 1, one=True),
    "bad-result": Kind("agent", "the result is not valid", 1),
    "claimed": Kind("task", "the agent says that it failed", 1),
    "too-long": Kind("task", "the task is too long for the model", one=True),
    "timeout": Kind("task", "the time was up", 1, one=True),
    "exit": Kind("task", "the command failed", 2),
    "git-conflict": Kind("task", "the changes do not merge"),
    "git-busy": Kind("muster", "another git is at work there", 4, 2, 60, one=True),
    "git": Kind("muster", "git failed", 1),
    "taken": Kind("muster", "the name or branch is taken", 1),
    "refused": Kind("muster", "refused, to protect work"),
    "usage": Kind("muster", "the call is off"),
    "unknown": Kind("muster", "it failed, and nobody says why", 1),
}

#: The kind for each reason that the fleet or the scheduler gives. A reason may also be the name of a kind.
REASONS = {
    "limit": "quota",
    "stalled": "stall",
    "invalid": "bad-result",
    "over-budget": "budget",
    "interrupted": "killed",
    "exit code not known": "crash",
    "its session is gone": "lost",
    "its record cannot be read": "lost",
    "never started": "lost",
    "create was interrupted": "lost",
    "destroy was interrupted": "lost",
}
STATES = {"unreachable": "host-unreachable", "lost": "lost"}
ANY = frozenset(STAGES)

#: Kind, pattern in lower case, and stages, in the order in which they are tried: causes come before their consequences.
RULES: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("disk-full", r"no space left|disk quota exceeded|unable to write file|enospc|edquot", ANY),
    ("no-memory", r"cannot allocate memory|out of memory|enomem|\boom[- ]?kill|memoryerror|std::bad_alloc", ANY),
    ("credit", r"credit balance is too low|insufficient_quota|exceeded your current quota|billing_error", ANY),
    ("credit", r"\b402\b.{0,40}payment|spend(?:ing)? limit", ANY),
    ("quota", r"hit your .{0,30}limit|usage_limit_(?:reached|exceeded)|usage limit (?:has been )?reached", ANY),
    ("quota", r"(?:weekly|daily|5-hour|session) limit reached", ANY),
    ("overload", r"overloaded_error|\b(?:529|503)\b.{0,60}(?:overload|unavailable)|(?:server|api|model)s? (?:is|are) (?:currently )?overloaded", ANY),
    ("overload", r"experiencing high load|api is at capacity|server_is_overloaded", ANY),
    ("rate-limit", r'rate_limit_(?:error|exceeded)|"rate_limit"|\b429\b.{0,60}(?:too many|rate)|rate limit (?:reached|exceeded)', ANY),
    ("rate-limit", r"too many requests|(?:api error|status|http)[:= ]{1,3}429\b", ANY),
    ("too-long", r"prompt is too long|context_length_exceeded|maximum context length|request_too_large", ANY),
    ("auth", r"authentication_error|invalid (?:x-)?api[- ]key|incorrect api key|oauth token (?:has )?(?:expired|revoked)", ANY),
    ("auth", r"please run /login|not logged in|token_expired|refresh token (?:is|was|has)\b|\b401\b.{0,40}(?:unauthorized|invalid)", ANY),
    ("auth", r"(?:api error|status|http)[:= ]{1,3}401\b", ANY),
    ("bad-request", r"invalid_request_error|permission_error|not_found_error|model_not_found", ANY),
    ("bad-request", r"api error[:= ]{1,3}4\d\d\b", ANY),
    ("provider-error", r"api error[:= ]{1,3}5\d\d\b|\bapi_error\b|internal_server_error|\b50[024]\b.{0,20}(?:internal|bad|gate)", ANY),
    ("network", r"unable to connect to (?:the )?api|api error.{0,40}connection|\bfetch failed|stream disconnected before", ANY),
    ("network", r"getaddrinfo (?:enotfound|eai_again)|the transfer was cut off", ANY),
    ("host-refuses", r"permission denied \((?:publickey|password|keyboard|gssapi)|host key verification failed", OURS),
    ("host-refuses", r"too many authentication failures|remote host identification has changed", OURS),
    ("host-unreachable", r"cannot be reached|did not (?:answer|end) within|\bssh: |kex_exchange|connection (?:refused|reset)", OURS),
    ("host-unreachable", r"(?:connection|operation) timed out|no route to host|connection (?:to .{1,80} )?closed|broken pipe", OURS),
    ("host-busy", r"resource temporarily unavailable|too many open files|fork failed|fork: retry|out of ptys|eagain|emfile", OURS),
    ("not-installed", r"\bnot installed|command not found|: not found\s*$|no such file or directory.{0,40}\bexec|a program is missing", OURS),
    ("no-right", r"read-only file system|permission denied|no right to|operation not permitted|eacces|erofs", OURS),
    ("git-busy", r"index\.lock|unable to create .{0,200}\.lock|cannot lock ref|could not lock|another git process", OURS),
    ("git-conflict", r"\bconflict \(|automatic merge failed|could not apply|conflict(?:s|ing)? in\b|needs merge", OURS | {"result"}),
    ("taken", r"there is an agent \S{1,80} already|\bname \S{1,80} is taken|a branch named .{0,200} already exists|already (?:checked out|used by worktree)", OURS),
    ("no-answer", r"gave no sign that it took|is still starting|nobody would read it", ANY),
    ("permission", r"waits for a permission", OURS),
    ("question", r"asks a question", OURS),
    ("dialog", r"shows a dialog|shows no menu", OURS),
    ("lost", r"the work dir is gone|its work dir .{0,300} is gone|\bno agent \S|there is no agent|\bis gone$|was destroyed while", OURS),
    ("tmux", r"\btmux: |no server running|server exited|lost server|error connecting to /|can't find (?:session|pane)", OURS),
    ("git", r"\bfatal: |^git \w+: |error: (?:pathspec|failed to push|object)|bad object|unrelated histories", OURS),
    ("crash", r"segmentation fault|core dumped|\bpanicked at\b|bus error|illegal instruction", LAUNCHING),
)  # fmt: skip
ERRORS: tuple[tuple[type[BaseException], str], ...] = (
    (Unreachable, "host-unreachable"),
    (Stuck, "dialog"),
    (NotFound, "lost"),
    (Refused, "refused"),
    (UsageError, "usage"),
    (TimedOut, "no-answer"),
    (MemoryError, "no-memory"),
    (TimeoutError, "no-answer"),
    (ConnectionError, "host-unreachable"),
)
#: A line that matches says more than the last line.
TELLING = r"error|exception|fatal|panic|fail|cannot|can't|could not|refused|denied|invalid|missing|not found|unable"


class Failure(NamedTuple):
    """A failed attempt."""

    stage: str
    kind: str
    blame: str
    retryable: bool
    counts: bool
    text: str
    """The error text: bounded, without escape sequences."""
    host: str = ""
    t: float = 0.0
    until: float = 0.0
    """When the limit ends; 0 if unknown."""
    own: tuple[str, ...] = ()
    """Words that only this attempt has (its agent, its item); they are ignored when failures are compared."""

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "own": list(self.own)}

    @classmethod
    def from_json(cls, data: object) -> Failure:
        """Restore a failure; the properties of its kind come from KINDS. Raises ValueError for invalid data."""
        if not isinstance(data, dict) or data.get("stage") not in STAGES or not isinstance(data.get("text"), str):
            raise ValueError("not a failure")
        kind = data.get("kind")
        own, host = data.get("own"), data.get("host")
        return _failure(
            data["stage"],
            kind if isinstance(kind, str) and kind in KINDS else "unknown",
            said(data["text"]),
            host[:255] if isinstance(host, str) else "",
            moment(data.get("t")),
            moment(data.get("until")),
            own if isinstance(own, list) else (),
        )


def classify(
    stage: str,
    text: str,
    *,
    state: str = "",
    reason: str = "",
    exit_code: int | None = None,
    host: str = "",
    t: float = 0.0,
    until: float | None = None,
    own: Sequence[str] = (),
) -> Failure:
    """Classify a failed attempt.

    `state`, `reason`, `exit_code` and `until` come from the agent's status; a reason may also be the name of a kind. `text` is the last
    output. Facts about the process take precedence over the text, and the text over a bare exit code.
    """
    text = said(text)
    kind = _known(state, reason, exit_code) or _told(stage, text) or _ended(stage, state, reason, exit_code)
    if not until and KINDS[kind].blame in ("limit", "provider"):
        until = min(_ends(text, t), t + WORDS_LONGEST)
    return _failure(stage, kind, text, host, t, until or 0.0, own)


def from_error(stage: str, error: BaseException, *, host: str = "", t: float = 0.0, own: Sequence[str] = ()) -> Failure:
    """Classify an exception by its text, or else by its class."""
    text = said(error.message if isinstance(error, MusterError) else str(error) or type(error).__name__)
    by_class = next((kind for which, kind in ERRORS if isinstance(error, which)), "unknown")
    return _failure(stage, _told(stage, text) or by_class, text, host, t, 0.0, own)


def said(text: str) -> str:
    """Return the beginning and the end of a text, without escape sequences."""
    if len(text) > TEXT_CAP:
        head = TEXT_CAP // 4
        text = f"{text[:head]}\n…\n{text[-(TEXT_CAP - head - 3) :]}"
    return strip(text).strip()


def _failure(stage: str, kind: str, text: str, host: str, t: float, until: float, own: Iterable[object]) -> Failure:
    known = KINDS[kind]
    words = tuple(str(word)[:200] for word in list(own)[:8])
    until = min(until, t + LONGEST_WAIT) if until > t else 0.0
    return Failure(stage, kind, known.blame, known.tries > 0, known.counts, text, host, t, until, words)


def _known(state: str, reason: str, exit_code: int | None) -> str:
    if reason in KINDS:
        return reason
    if kind := REASONS.get(reason) or STATES.get(state):
        return kind
    return "no-memory" if exit_code in (137, -9) or reason == "signal 9" else ""


def _told(stage: str, text: str) -> str:
    text = text.lower()
    rules = (rule for rule in RULES if stage in rule[2] and re.search(rule[1], text, re.MULTILINE))
    return next((kind for kind, _, _ in rules), "")


def _ended(stage: str, state: str, reason: str, exit_code: int | None) -> str:
    signal = re.fullmatch(r"signal (\d{1,2})", reason)
    ended = re.fullmatch(r"exit (\d{1,3})", reason)
    code = exit_code if exit_code is not None else 128 + int(signal[1]) if signal else int(ended[1]) if ended else None
    if code in (126, 127):
        return "not-installed"
    if code is not None and (code < 0 or code > 128):
        number = -code if code < 0 else code - 128
        return "killed" if number in (1, 2, 3, 13, 15) else "crash"
    if code:
        return "early-exit" if stage in LAUNCHING else "exit" if stage in ("work", "result") else "unknown"
    if reason == "failed turn":
        return "turn"
    if stage == "result":
        return "bad-result"
    return "no-result" if stage == "work" and (code == 0 or state in ("ready", "done")) else "unknown"


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _ends(text: str, t: float) -> float:
    """Return the end of a limit that a text names, in seconds since 1970; 0 if it names none."""
    text = text[-TEXT_CAP:]
    if at := re.search(r"resets?_?at\W{1,4}(\d{9,11})\b", text, re.IGNORECASE):
        return float(at[1])
    if span := re.search(r"(?:resets_in_seconds|retry[-_ ]after(?:_seconds)?)\W{1,4}(\d{1,7})\b", text, re.IGNORECASE):
        return t + float(span[1])
    if again := re.search(r"(?:try again|retry|resets) in ((?:\d{1,5}(?:\.\d{1,6})? ?[a-z]+[, ]*){1,4})", text, re.IGNORECASE):  # fmt: skip
        parts = re.findall(r"(\d+(?:\.\d+)?) ?(ms|[smhd])", again[1].lower())
        return t + sum(float(count) * _UNITS.get(unit, 0.001) for count, unit in parts)
    return 0.0


def moment(value: object) -> float:
    """Return a plausible time, else 0: a file may hold anything."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e11 else 0.0


# Which failures are alike

_NOT_IN_PATHS = r"""\s/:;,'"`()<>|\[\]{}="""
_PLACES = re.compile(
    rf"""
    \b (?P<scheme>[a-z][a-z+]{{1,10}}://) (?P<rest>[^\s"'<>()]+)
    | (?<![\w./~…#-]) (?P<temp>(?:/private)?/(?:tmp|var/tmp|dev/shm|var/folders/[^{_NOT_IN_PATHS}]+/[^{_NOT_IN_PATHS}]+/T)/)
      (?P<in>[^{_NOT_IN_PATHS}]+ (?:/[^{_NOT_IN_PATHS}]*)*)
    | (?<![\w./~…#-]) (?P<path>(?:~|\.\.?)?/ (?:[^{_NOT_IN_PATHS}]+/)+ [^{_NOT_IN_PATHS}]*)
    | \b (?P<host>host(?:name)?[ ]) (?!(?:key|is|has|was|did|does|cannot|and|or|not|identification)\b) [\w-](?:[\w.-]*\w)?
    | (?<=\w) @ [\w-](?:[\w.-]*\w)?
    """,
    re.VERBOSE,
)  # fmt: skip
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_VALUES = re.compile(
    rf"""
    (?P<kept>\b (?:exit|code|status|signal|HTTP|errno|API[ ]Error) [ :=]{{1,2}} \d{{1,3}} (?![.,:]?\w))
    | \b (?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{{0,6}},?[ ])? (?:{_MONTH}[ ]+\d{{1,2}}|\d{{1,2}}[ ]{_MONTH})\b (?:,?[ ]\d{{4}}\b)?
    | \d{{4}}-\d\d-\d\d (?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?)? (?:Z|[+-]\d\d:?\d\d)?
    | (?<![A-Za-z0-9]) (?:
          [0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}
        | 0x[0-9a-fA-F]+ | [0-9a-fA-F]{{8,}} | (?=[a-f]*\d)[0-9a-f]{{7}}
        | (?=(?:[A-Za-z]*\d){{2}})[A-Za-z0-9]{{16,}}
        | (?:sk|pk|req|msg|resp|toolu|gh[a-z]|xox[a-z])[-_](?=[A-Za-z_-]{{0,80}}\d)[A-Za-z0-9_-]{{6,}}
        | tmp[a-z0-9_]{{8}} | tmp\.[A-Za-z0-9]{{6,}}
      ) (?![A-Za-z0-9])
    | \d+ (?:[.,:]\d+)* (?:[ ]?(?:ns|µs|us|ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|am|pm|[kKMGT]i?B?|bytes?|%)(?!\w))?
    """,
    re.VERBOSE,
)  # fmt: skip
_SIGNS = re.compile(r"#(?:[ .,:_-]?#)+")


def mask(text: str) -> str:
    """Return the text with `#` for everything that differs between two runs of the same thing. Only the last part of a path stays.

    The result is never longer than the text, and `mask(mask(text)) == mask(text)`.
    """
    text = strip(text[:MASK_CAP])
    # One replacement may expose another ("x12abcdefab"). Each round removes letters or digits, so this ends.
    while (masked := _SIGNS.sub("#", _VALUES.sub(_value, _PLACES.sub(_place, text)))) != text:
        text = masked
    return text


def _value(found: re.Match[str]) -> str:
    return found["kept"] or "#"


def _place(found: re.Match[str]) -> str:
    if scheme := found["scheme"]:
        host, slash, path = found["rest"].partition("/")
        return scheme + host.rpartition("@")[2] + slash + ("…" if path else "")
    if found["temp"]:
        parts = [part for part in found["in"].split("/") if part]
        return "/tmp/#" + (f"/{parts[-1]}" if len(parts) > 1 else "")
    if path := found["path"]:
        parts = [part for part in path.split("/") if part]
        return f"…/{parts[-1]}" if len(parts) > 1 else f"/{parts[-1]}"
    return f"{found['host']}#" if found["host"] else "@#"


class Fingerprint(NamedTuple):
    """Failures with the same `key` are alike."""

    version: int
    key: str
    why: str


def telling(failure: Failure) -> str:
    """Return the line that says what happened: the one that matches the failure's kind, else the last with an error, else the last."""
    lines = [line.strip()[:LINE_CAP] for line in failure.text.split("\n") if line.strip()]
    by_kind = "|".join(f"(?:{pattern})" for kind, pattern, _ in RULES if kind == failure.kind)
    for pattern, order in ((by_kind, lines), (TELLING, lines[::-1])):
        for line in order:
            if pattern and re.search(pattern, line.lower()):
                return line
    return lines[-1] if lines else ""


def fingerprint(failure: Failure) -> Fingerprint:
    """Return the fingerprint: the kind and, if a kind has many causes, the masked telling line."""
    known = KINDS.get(failure.kind, KINDS["unknown"])
    if known.one:
        return Fingerprint(
            FINGERPRINT, f"{FINGERPRINT}:{failure.kind}", f"all {failure.kind} failures are alike: {known.words}"
        )
    line = telling(failure)
    words = {word for word in (*failure.own, failure.host) if len(word) > 2}  # shorter ones would match everywhere
    for word in sorted(words, key=lambda word: (-len(word), word)):
        line = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "#", line)
    line = " ".join(mask(line).split())
    digest = hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()[:12]
    return Fingerprint(FINGERPRINT, f"{FINGERPRINT}:{failure.kind}:{digest}", f"{failure.kind} with the line {line!r}")


class Group(NamedTuple):
    """The failures of one fingerprint."""

    print: Fingerprint
    size: int
    stages: dict[str, int]
    hosts: dict[str, int]
    first: float
    last: float
    example: Failure


def groups(failures: Iterable[Failure]) -> list[Group]:
    """Group failures by fingerprint, the largest group first. The order of the failures does not matter."""
    by_key: dict[str, list[Failure]] = {}
    prints: dict[str, Fingerprint] = {}
    for one in failures:
        seen = fingerprint(one)
        prints[seen.key] = seen
        by_key.setdefault(seen.key, []).append(one)
    found = []
    for key, members in by_key.items():
        stages, hosts = Counter(one.stage for one in members), Counter(one.host for one in members)
        example = min(members, key=lambda one: (one.t, one))
        last = max(one.t for one in members)
        found.append(Group(prints[key], len(members), _ordered(stages), _ordered(hosts), example.t, last, example))
    return sorted(found, key=lambda group: (-group.size, group.first, group.print.key))


def diagnose(failures: Iterable[Failure], attempts: int) -> str:
    """Return a diagnosis in one line, such as "38 of 40 failed at launch on host box2: no space left for the agent"."""
    every = list(failures)
    counted = [one for one in every if one.counts]
    found = groups(counted or every)
    if not found:
        return f"none of {attempts} failed"
    first, rest = found[0], found[1:]
    happened = "failed" if counted else "met a limit"
    places = [host for host in first.hosts if host]
    where = f" on host {places[0]}" if places and len(first.hosts) == 1 else ""
    if len(first.hosts) > 1:
        where = f" on {len(first.hosts)} hosts"
    line = f"{first.size} of {max(attempts, len(every))} {happened} at {_listed(first.stages)}{where}: {cause_of(first.example)}"
    if rest:
        others = sum(group.size for group in rest)
        line += f" ({others} more of {len(rest)} other {'kind' if len(rest) == 1 else 'kinds'})"
    return line


def cause_of(failure: Failure) -> str:
    """Describe a failure in a message; with its telling line if the kind alone says too little."""
    known = KINDS.get(failure.kind, KINDS["unknown"])
    line = " ".join(telling(failure).split())
    if known.one or not line:
        return known.words
    return f"{known.words} ({line if len(line) <= 160 else line[:159] + '…'})"


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _listed(stages: dict[str, int]) -> str:
    names = list(stages)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# Where to look


def cause(failures: Sequence[Failure], well_elsewhere: bool = False) -> str:
    """Return where to look: `limits`, `environment` (hosts, providers, launching) or `code` (what the agents work on, and how)."""
    most = Counter(one.blame for one in failures).most_common(1)[0][0] if failures else "muster"
    if most == "limit":
        return "limits"
    one_host = len({one.host for one in failures}) == 1
    ours = sum(one.stage in OURS for one in failures) * 2 > len(failures)
    return "environment" if ours or most not in ("task", "agent") or (one_host and well_elsewhere) else "code"


# Retries


def retry_after(failure: Failure, attempt: int, rnd: float) -> float | None:
    """Return the seconds from `failure.t` to the next attempt, after `attempt` failures; None if there is no next one.

    The wait doubles each time, and `rnd` (0 <= rnd < 1) shortens it by up to half. A limit whose end is known is waited for instead.
    Limits are retried often, but not for ever, because an agent can print the text of one.
    """
    known = KINDS.get(failure.kind, KINDS["unknown"])
    if not failure.retryable or attempt > known.tries:
        return None
    if failure.until > failure.t:
        return min(failure.until - failure.t, LONGEST_WAIT) + SPREAD * rnd
    wait = min(known.most, known.wait * 2.0 ** (max(attempt, 1) - 1))
    return wait * (1 - rnd / 2)
