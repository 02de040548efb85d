"""Failures of a run: a row for every rule of the table, masks and fingerprints as properties, and when to try again."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.errors import MusterError, NotFound, Refused, Stuck, TimedOut, Unreachable, UsageError
from muster.evidence import CUT_OFF
from muster.flow.limits import failures
from muster.flow.limits.failures import Failure, classify, diagnose, fingerprint, from_error, groups, mask, retry_after
from muster.store import TROUBLE

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "150"))
several = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# The taxonomy

ROWS = [
    # muster's own words, and those it passes on
    ("launch", "no space left for the agent: tar: env: Cannot write: No space left on device", "disk-full"),
    ("work", "OSError: [Errno 28] No space left on device: 'out.bin'", "disk-full"),
    ("create", "fatal: unable to write file src/a.py", "disk-full"),
    ("harvest", "tar: rec/1.raw: Wrote only 512 of 10240 bytes\ncat: write error: Disk quota exceeded", "disk-full"),
    ("launch", "fork: Cannot allocate memory", "no-memory"),
    ("work", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "no-memory"),
    (
        "create",
        "the place for the agent is read-only: mkdir: cannot create directory: Read-only file system",
        "no-right",
    ),
    ("create", "no right to write there: mkdir: cannot create directory '/srv/x': Permission denied", "no-right"),
    ("launch", "tmux is not installed", "not-installed"),
    ("start", "sh: 1: claude: not found", "not-installed"),
    ("start", "bash: codex: command not found", "not-installed"),
    (
        "launch",
        "host box2 cannot be reached: ssh: connect to host box2 port 22: Connection refused",
        "host-unreachable",
    ),
    ("create", "host box2 cannot be reached: no answer", "host-unreachable"),
    ("harvest", "host box2 did not answer within 20 s", "host-unreachable"),
    ("launch", "ssh: Could not resolve hostname box2: Name or service not known", "host-unreachable"),
    ("harvest", "client_loop: send disconnect: Broken pipe", "host-unreachable"),
    ("launch", "ssh: connect to host 10.0.0.7 port 22: No route to host", "host-unreachable"),
    ("launch", "host b cannot be reached: me@b: Permission denied (publickey,password).", "host-refuses"),
    ("launch", "host b cannot be reached: Host key verification failed.", "host-refuses"),
    ("launch", "Received disconnect from 10.0.0.7: 2: Too many authentication failures", "host-refuses"),
    ("launch", "tmux: create window failed: fork failed: Resource temporarily unavailable", "host-busy"),
    ("launch", "tmux: server exited unexpectedly", "tmux"),
    ("launch", "no server running on tmux.sock", "tmux"),
    ("create", "git seed: fatal: Unable to create '/r/.git/index.lock': File exists.", "git-busy"),
    ("create", "error: cannot lock ref 'refs/heads/x': is at 123 but expected 456", "git-busy"),
    ("harvest", "CONFLICT (content): Merge conflict in a.py\nAutomatic merge failed; fix conflicts", "git-conflict"),
    ("harvest", "error: could not apply 1a2b3c4... change", "git-conflict"),
    ("create", "fatal: bad object HEAD", "git"),
    ("create", "fatal: not a git repository (or any of the parent directories): .git", "git"),
    ("create", "claim: the name fix-17 is taken", "taken"),
    ("create", "fatal: a branch named 'muster/fix-17' already exists", "taken"),
    ("create", "fatal: 'x' is already used by worktree at '/w/x'", "taken"),
    ("work", "the text was typed, but fix-1 gave no sign that it took it", "no-answer"),
    ("start", "fix-1 is still starting", "no-answer"),
    ("start", "fix-1 waits for a permission, the text was not sent", "permission"),
    ("start", "fix-1 asks a question, the text was not sent", "question"),
    ("start", "fix-1 shows a dialog, the text was not sent", "dialog"),
    ("harvest", "the work dir is gone: /home/me/work/fix-1", "lost"),
    ("stop", "no agent fix-1-1a2b3c4d", "lost"),
    ("harvest", "the transfer was cut off", "network"),
    ("start", "Segmentation fault (core dumped)", "crash"),
    # clients and providers
    ("work", "You've hit your limit · resets 3pm (Europe/Berlin)", "quota"),
    ("work", "You’ve hit your weekly limit · resets Nov 20, 3pm (UTC)", "quota"),
    ("work", "You've hit your usage limit. Try again in 3 days 4 hours 11 minutes.", "quota"),
    ("work", '{"type":"usage_limit_reached","message":"The usage limit has been reached"}', "quota"),
    ("work", "5-hour limit reached ∙ resets 3pm", "quota"),
    ("work", 'API Error: 429 {"type":"error","error":{"type":"rate_limit_error","message":"…"}}', "rate-limit"),
    ("work", "exceeded retry limit, last status: 429 Too Many Requests, request id: c4fc59ca", "rate-limit"),
    ("work", "API Error: 429 no more for now", "rate-limit"),
    ("work", "Rate limit reached for gpt-5 in organization org-x", "rate-limit"),
    ("work", 'API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "overload"),
    ("work", "API Error: Repeated 529 Overloaded errors. The API is at capacity", "overload"),
    ("work", "unexpected status 503 Service Unavailable", "overload"),
    ("work", "Opus is experiencing high load, please use /model to switch", "overload"),
    ("work", 'API Error: 401 {"error":{"type":"authentication_error","message":"invalid x-api-key"}}', "auth"),
    ("work", "exceeded retry limit, last status: 401 Unauthorized, request id: 9a5793386e39fede-SIN", "auth"),
    ("work", "API Error: 401 who are you", "auth"),
    ("start", "Invalid API key · Please run /login", "auth"),
    ("work", "OAuth token has expired. Please obtain a new token", "auth"),
    ("work", "Your access token could not be refreshed because your refresh token was already used.", "auth"),
    ("work", "Credit balance is too low", "credit"),
    ("work", "You exceeded your current quota, please check your plan and billing details.", "credit"),
    ("work", "Your organization has reached its spend limit", "credit"),
    ("work", "Prompt is too long", "too-long"),
    ("work", 'API Error: 400 {"error":{"type":"invalid_request_error","message":"no good"}}', "bad-request"),
    ("work", "API Error: 404 not here", "bad-request"),
    ("work", '{"type":"not_found_error","message":"model: nobody"}', "bad-request"),
    ("work", 'API Error: 500 {"error":{"type":"api_error","message":"Internal server error"}}', "provider-error"),
    ("work", "unexpected status 502 Bad Gateway", "provider-error"),
    ("work", "Unable to connect to API (ECONNREFUSED)", "network"),
    ("work", "stream disconnected before completion: error sending request", "network"),
    # words of the task, which say nothing of hosts
    ("work", "E   PermissionError: [Errno 13] Permission denied: 'secret'", "unknown"),
    ("work", "error: no matching overloaded function", "unknown"),
    ("work", "ConnectionRefusedError: [Errno 111] Connection refused", "unknown"),
    ("work", "thread 'main' panicked at src/lib.rs:1", "unknown"),
    ("work", "the limit of 429 lines is reached", "unknown"),
    ("plan", "", "unknown"),
]


@pytest.mark.parametrize(("stage", "text", "kind"), ROWS)
def test_words_are_known_by_their_kind(stage: str, text: str, kind: str) -> None:
    failure = classify(stage, text, host="b", t=7.0)
    assert failure.kind == kind
    known = failures.KINDS[kind]
    assert (failure.blame, failure.counts, failure.retryable) == (known.blame, known.counts, known.tries > 0)
    assert (failure.stage, failure.host, failure.t) == (stage, "b", 7.0)


def test_every_rule_has_a_row_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, unneeded = failures.RULES, []
    for number, left_out in enumerate(rules):
        monkeypatch.setattr(failures, "RULES", rules[:number] + rules[number + 1 :])
        if all(classify(stage, text).kind == kind for stage, text, kind in ROWS):
            unneeded.append(left_out)
    assert not unneeded


def test_the_words_for_trouble_of_the_store_are_all_known() -> None:
    for sign, what, _ in TROUBLE:
        assert classify("launch", f"{what}: sh: {sign}").kind in ("disk-full", "no-right", "not-installed")


FACTS: list[tuple[str, dict[str, Any], str]] = [
    ("work", {"state": "failed", "reason": "timeout", "exit_code": 143}, "timeout"),
    ("work", {"state": "waiting", "reason": "limit"}, "quota"),
    ("work", {"state": "waiting", "reason": "question"}, "question"),
    ("work", {"state": "waiting", "reason": "permission"}, "permission"),
    ("start", {"state": "waiting", "reason": "dialog"}, "dialog"),
    ("work", {"state": "unreachable"}, "host-unreachable"),
    ("work", {"state": "lost", "reason": "its session is gone"}, "lost"),
    ("work", {"state": "failed", "reason": "signal 9", "exit_code": 137}, "no-memory"),
    ("work", {"exit_code": -9}, "no-memory"),
    ("work", {"state": "failed", "reason": "signal 11", "exit_code": 139}, "crash"),
    ("work", {"state": "failed", "reason": "signal 6"}, "crash"),
    ("work", {"state": "failed", "reason": "signal 15"}, "killed"),
    ("work", {"state": "ready", "reason": "interrupted"}, "killed"),
    ("work", {"state": "failed", "reason": "exit code not known"}, "crash"),
    ("work", {"state": "failed", "reason": "exit 3", "exit_code": 3}, "exit"),
    ("start", {"state": "failed", "reason": "exit 3", "exit_code": 3}, "early-exit"),
    ("harvest", {"exit_code": 3}, "unknown"),
    ("work", {"exit_code": 127}, "not-installed"),
    ("work", {"state": "ready", "reason": "failed turn"}, "turn"),
    ("work", {"state": "ready"}, "no-result"),
    ("work", {"state": "done", "exit_code": 0}, "no-result"),
    ("result", {"state": "ready"}, "bad-result"),
    ("result", {"reason": "invalid"}, "bad-result"),
    ("work", {"reason": "stalled"}, "stall"),
    ("work", {"reason": "over-budget"}, "budget"),
]


@pytest.mark.parametrize(("stage", "facts", "kind"), FACTS)
def test_facts_are_known_by_their_kind(stage: str, facts: dict[str, Any], kind: str) -> None:
    assert classify(stage, "some words", **facts).kind == kind


def test_facts_come_before_words_and_words_before_an_exit_code() -> None:
    assert classify("work", "You've hit your limit", exit_code=137).kind == "no-memory"
    assert classify("work", "Credit balance is too low", exit_code=1).kind == "credit"
    assert classify("work", "No space left on device", state="failed", reason="timeout").kind == "timeout"


def test_every_reason_of_a_lost_agent_and_every_kind_by_name_is_known() -> None:
    assert {classify("launch", "", state="lost", reason=reason).kind for reason in CUT_OFF} == {"lost"}
    for kind, known in failures.KINDS.items():
        assert classify("work", "x", reason=kind).kind == kind
        assert known.blame in failures.BLAMES and known.words
        # A limit is waited for, and is no failure; where nothing would come of waiting it is one.
        assert known.counts or known.tries or kind == "budget"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unreachable("host b has gone"), "host-unreachable"),
        (Unreachable("host b cannot be reached: me@b: Permission denied (publickey)."), "host-refuses"),
        (Stuck("fix-1 takes only what it names: yes, no"), "dialog"),
        (NotFound("nothing like that"), "lost"),
        (Refused("there is unmerged work"), "refused"),
        (UsageError("no such type"), "usage"),
        (TimedOut("timed out waiting for a (still working)"), "no-answer"),
        (MemoryError(), "no-memory"),
        (OSError(28, "No space left on device"), "disk-full"),
        (MusterError("no idea", "command not found: this is only a hint"), "unknown"),
        (KeyError("x"), "unknown"),
    ],
)
def test_an_error_is_known_by_its_words_then_by_its_class(error: BaseException, kind: str) -> None:
    assert from_error("launch", error, host="b", t=3.0)[1:2] == (kind,)


def test_what_is_kept_of_a_text_is_bounded_and_plain() -> None:
    failure = classify("work", "first words\n" + "x\n" * 500_000 + "\x1b[31mlast\x1b[0m \x07words")
    assert len(failure.text) <= failures.TEXT_CAP
    assert failure.text.startswith("first words") and failure.text.endswith("last words")


def test_the_end_of_a_limit_is_taken_from_what_is_known_then_from_the_words() -> None:
    def until(text: str, **facts: Any) -> float:
        return classify("work", text, t=1000.0, **facts).until

    assert until("hit your limit", until=5000.0) == 5000.0
    assert (
        until('usage_limit_reached "resets_at":1772180859, "resets_in_seconds":30') == 1000.0 + failures.WORDS_LONGEST
    )
    assert until('usage_limit_reached "resets_in_seconds": 30') == 1030.0
    assert until("429 Too Many Requests, retry-after: 12") == 1012.0
    assert until("You've hit your usage limit. Try again in 41 minutes 11 seconds.") == 1000 + 41 * 60 + 11
    days = "You've hit your usage limit. Try again in 3 days 4 hours 11 minutes."
    assert until(days) == 1000 + failures.WORDS_LONGEST, (
        "of what is only said it is tried from time to time whether it is true"
    )
    assert until("Rate limit reached for x. Please try again in 1.5s.") == 1001.5
    assert until("Rate limit reached for x. Please try again in 20ms.") == pytest.approx(1000.02)
    assert until("hit your limit") == 0.0
    # One that is past, and one of a failure that is no limit, is none.
    assert until("hit your limit", until=900.0) == 0.0
    assert until("No space left on device, retry-after: 12") == 0.0


# Masks and fingerprints


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("agent 0f8fad5b-d9cb-469f-a165-70867728950e is gone", "agent # is gone"),
        ("fix-17-1a2b3c4d failed", "fix-# failed"),
        ("commit deadbeef and 1a2b3c4", "commit # and #"),
        ("at 2025-11-20T12:30:45.123Z it ended", "at # it ended"),
        ("Thu, Nov 20, 2025 at 3:30pm", "# at #"),
        ("took 1m 20s", "took #"),
        ("took 350ms", "took #"),
        ("used 1.5 GB of 2 GB", "used # of #"),
        ("/tmp/tmpk3jd9a/x/out.bin: gone", "/tmp/#/out.bin: gone"),
        ("/dev/shm/a: gone", "/tmp/#: gone"),
        ("open /home/ann/work/fix-17/settings.json", "open …/settings.json"),
        ("open ~/.claude/settings.json", "open …/settings.json"),
        ('File "/usr/lib/python3.11/json/x.py", line 31, in loads', 'File "…/x.py", line #, in loads'),
        ("ssh: connect to host box2.example.org port 22: refused", "ssh: connect to host # port #: refused"),
        ("fix@box2: no", "fix@#: no"),
        ("at 10.0.0.7:8080", "at #"),
        ("https://ann:secret@api.example.org/v1/messages?x=1 said no", "https://api.example.org/… said no"),
        ("request id: req_011CVabcDEFghi", "request id: #"),
        ("key sk-ant-api03-AbCdEf", "key #"),
        ("object at 0x7f3a", "object at #"),
        # What tells failures apart stays.
        ("exit 3", "exit 3"),
        ("status: 404", "status: 404"),
        ("signal 11", "signal 11"),
        ("exit 1234", "exit #"),
        ("tests/test_cart.py::test_a_total and/or else", "tests/test_cart.py::test_a_total and/or else"),
    ],
)
def test_what_changes_is_masked_and_what_tells_stays(text: str, masked: str) -> None:
    assert mask(text) == masked


#: Pieces that masks look for, so that what one of them uncovers is found by another.
PIECES = st.lists(
    st.one_of(
        st.text(max_size=8),
        st.text("0123456789abcdefgx", max_size=12),
        st.sampled_from(
            [
                *"/~.@#…:,-_ \n\x1b\t%",
                *"://|http|exit |status=|/tmp/|host |Nov |Thu |tmp|0x|sk-|req_".split("|"),
                *" ms|s| pm|…/|../|[0m|a1b2c3d4|2025-11-20|T12:30".split("|"),
            ]
        ),
    ),
    max_size=30,
).map("".join)


@several
@given(PIECES)
def test_masking_twice_is_masking_once_and_never_makes_a_text_longer(text: str) -> None:
    masked = mask(text)
    assert mask(masked) == masked
    assert len(masked) <= len(text)
    assert "\x1b" not in masked


@pytest.mark.parametrize(
    "unit",
    [
        "a.",
        "/a",
        "//",
        "1a",
        "x12abcdefab",
        "@a",
        "host ",
        "\x1b]",
        "a-",
        "#1",
        "http",
        "exit ",
        "0.",
        "~/",
        "sk-",
        "req_",
        "Nov  ",
        "tmp.",
    ],
)
def test_no_text_makes_masking_slow(unit: str) -> None:
    text = unit * (2 * failures.MASK_CAP)
    began = time.process_time()
    masked = mask(text)
    classify("launch", text)
    assert time.process_time() - began < 3.0
    assert len(masked) <= failures.MASK_CAP and mask(masked) == masked


IDS = st.text("0123456789abcdef", min_size=8, max_size=8)
#: No word of the templates: an agent called as one of those hides it.
NAMES = st.text("bcdfghjklmnpqrstvwxz", min_size=3, max_size=8).filter(lambda name: name != "tmp")
TEMPLATES = [
    "start: {path}/settings.json: unexpected token after {seconds}s",
    "fix-{number}-{id}: no such type",
    "host {host} said no to {name}@{host} at {date}",
    "Traceback of {uuid}\n  File \"{path}/x.py\", line {number}\nKeyError: 'colour'",
    "error: {temp} of agent {name} was not found on {host}",
]


@st.composite
def parts(draw: st.DrawFn) -> dict[str, str]:
    return {
        "id": draw(IDS),
        "uuid": str(draw(st.uuids())),
        "number": str(draw(st.integers(0, 10**6))),
        "seconds": f"{draw(st.floats(0.1, 10_000)):.1f}",
        "date": draw(st.datetimes()).strftime("%Y-%m-%d %H:%M:%S") if draw(st.booleans()) else "2024-02-29",
        "path": "/" + "/".join(draw(st.lists(NAMES, min_size=1, max_size=4))),
        "temp": f"/tmp/{draw(NAMES)}.{draw(IDS)}",
        "host": draw(NAMES),
        "name": draw(NAMES),
    }


@several
@given(st.sampled_from(TEMPLATES), st.sampled_from(failures.STAGES), parts(), parts())
def test_equal_failures_of_other_agents_paths_hosts_and_times_have_one_fingerprint(
    template: str, stage: str, one: dict[str, str], other: dict[str, str]
) -> None:
    prints = [
        fingerprint(
            classify(stage, template.format(**values), exit_code=1, host=values["host"], t=t, own=(values["name"],))
        )
        for t, values in enumerate((one, other))
    ]
    assert prints[0] == prints[1]


@several
@given(st.sampled_from(sorted(failures.KINDS)), st.sampled_from(sorted(failures.KINDS)), PIECES, PIECES)
def test_different_kinds_never_share_a_fingerprint(one: str, other: str, text: str, more: str) -> None:
    keys = [fingerprint(classify("work", words, reason=kind)).key for kind, words in ((one, text), (other, more))]
    assert one == other or keys[0] != keys[1]


def test_a_fingerprint_has_its_version_and_says_why() -> None:
    full = fingerprint(classify("launch", "tar: x: No space left on device"))
    assert full == fingerprint(classify("harvest", "fatal: unable to write file y", host="b"))
    assert full.version == failures.FINGERPRINT and full.key == "1:disk-full" and "no space left" in full.why
    # These are written in the runs of users: another key for the same failure needs another version.
    odd = fingerprint(classify("work", "much before\nValueError: no colour 17 in /home/ann/x\nbye", exit_code=1))
    assert odd == (1, "1:exit:9d8dee5b60eb", "exit with the line 'ValueError: no colour # in …/x'")
    assert odd != fingerprint(classify("work", "ValueError: no shape 17 in /home/ann/x", exit_code=1))


def test_the_codes_of_exits_are_not_masked_away() -> None:
    assert fingerprint(classify("work", "make: exit 2", exit_code=2)) != fingerprint(
        classify("work", "make: exit 3", exit_code=3)
    )


def test_the_line_that_names_the_cause_is_the_one_that_counts() -> None:
    def line(stage: str, text: str, **facts: Any) -> str:
        return failures.telling(classify(stage, text, **facts))

    assert line("launch", "a: ok\nsh: tmux: command not found\nerror: it failed") == "sh: tmux: command not found"
    assert line("work", "error: early\nerror: late\n\n  bye  ", exit_code=1) == "error: late"
    assert line("work", "hello\nbye", exit_code=1) == "bye"
    assert line("work", "", exit_code=1) == ""


@several
@given(st.sampled_from(ROWS), PIECES, PIECES)
def test_the_telling_line_alone_has_the_same_fingerprint(row: tuple[str, str, str], before: str, after: str) -> None:
    failure = classify(row[0], f"{before}\n{row[1]}\n{after}")
    assert fingerprint(failure._replace(text=failures.telling(failure))) == fingerprint(failure)


# Groups


def full(host: str = "box2", t: float = 0.0, stage: str = "launch") -> Failure:
    return classify(stage, "tar: env: No space left on device", host=host, t=t)


def broke(host: str = "a", t: float = 0.0, text: str = "ValueError: no colour") -> Failure:
    return classify("work", text, exit_code=1, host=host, t=t)


def limit(host: str = "a", t: float = 0.0) -> Failure:
    return classify("work", "You've hit your limit", host=host, t=t)


FAILURES = st.builds(
    lambda row, host, t: classify(row[0], row[1], host=host, t=t),
    st.sampled_from(ROWS),
    st.sampled_from(["", "a", "b"]),
    st.floats(0, 100),
)


@several
@given(st.lists(FAILURES, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_failures_does_not_matter(failures: list[Failure], random: Any) -> None:
    shuffled = list(failures)
    random.shuffle(shuffled)
    assert groups(shuffled) == groups(failures)
    assert diagnose(shuffled, 20) == diagnose(failures, 20)
    assert sum(group.size for group in groups(failures)) == len(failures)


def test_groups_count_by_stage_and_host_and_the_largest_is_first() -> None:
    found = groups([broke(t=1.0), full(t=5.0), full("box3", 9.0, "create"), full(t=7.0)])
    assert [group.size for group in found] == [3, 1]
    assert found[0].stages == {"launch": 2, "create": 1} and list(found[0].hosts) == ["box2", "box3"]
    assert (found[0].first, found[0].last, found[0].example) == (5.0, 9.0, full(t=5.0))


def test_a_diagnosis_is_one_line_for_people() -> None:
    assert diagnose([full()] * 38, 40) == "38 of 40 failed at launch on host box2: no space left for the agent"
    assert (
        diagnose([broke(), broke("b")], 9)
        == "2 of 9 failed at work on 2 hosts: the command failed (ValueError: no colour)"
    )
    assert (
        diagnose([full("", 0, "create"), full(""), limit()], 3)
        == "2 of 3 failed at create and launch: no space left for the agent"
    )
    assert diagnose([full(), full(), broke()], 2) == (
        "2 of 3 failed at launch on host box2: no space left for the agent (1 more of 1 other kind)"
    )
    assert diagnose([limit("")], 2) == "1 of 2 met a limit at work: the usage limit is reached"
    assert diagnose([], 4) == "none of 4 failed"
    long = diagnose([broke(text="error: " + "x" * 9000 + "\x1b[2J\ny")], 1)
    assert len(long) < 300 and "\x1b" not in long and "\n" not in long


# Retries


def test_it_waits_twice_as_long_each_time_with_jitter_up_to_a_bound_and_a_number() -> None:
    gone = classify("launch", "host b cannot be reached: no answer")
    assert [retry_after(gone, attempt, 0.0) for attempt in range(1, 7)] == [15.0, 30.0, 60.0, 120.0, 240.0, None]
    assert retry_after(gone, 1, 0.5) == 11.25
    assert retry_after(classify("work", "API Error: 529 Overloaded"), 10, 0.0) == 600.0


@several
@given(FAILURES, st.integers(-5, 10**9), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_never_negative_nor_for_ever(failure: Failure, attempt: int, rnd: float) -> None:
    wait = retry_after(failure, attempt, rnd)
    assert wait is None or 0 < wait <= failures.LONGEST_WAIT + failures.SPREAD
    assert wait is None or failure.retryable
    assert attempt < 100 or wait is None


@pytest.mark.parametrize(
    "kind", ["auth", "credit", "not-installed", "question", "git-conflict", "too-long", "usage", "refused"]
)
def test_what_would_only_fail_again_is_not_tried_again(kind: str) -> None:
    assert retry_after(classify("work", "x", reason=kind), 1, 0.0) is None


def test_a_limit_waits_for_its_end_and_not_all_begin_at_it() -> None:
    known = classify("work", "You've hit your limit", t=1000.0, until=4600.0)
    assert retry_after(known, 1, 0.0) == 3600.0 and retry_after(known, 7, 0.5) == 3600.0 + failures.SPREAD / 2
    assert retry_after(classify("work", "You've hit your limit", t=1000.0), 1, 0.0) == 900.0
    assert retry_after(known, 21, 0.0) is None  # an agent can print the words of one for ever
