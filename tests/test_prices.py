"""What usage costs: bills as pure arithmetic, the real price library, what is kept of it, and hostile tallies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import prices
from muster.model import Bill, ModelBill

from .conftest import SRC, World
from .test_startup import HEAVY, loaded

#: Dollars for a token, as few as make the sums easy to see.
RATES = {"input": 1.0, "output": 10.0, "cache_read": 0.5, "cache_write": 2.0, "cache_write_1h": 4.0}


def told(**counts: int) -> dict[str, int]:
    return {f"{key}_tokens": count for key, count in counts.items()}


def usage(**models: dict[str, int]) -> dict[str, Any]:
    """A tally as a type writes it: the totals, and what each model has of them."""
    totals: dict[str, int] = {}
    for counts in models.values():
        for key, count in counts.items():
            totals[key] = totals.get(key, 0) + count
    return {**totals, "models": models}


def bill(tally: dict[str, Any]) -> Bill:
    """With prices for every model that is called known."""
    return prices.bill(tally, lambda model: RATES if model.startswith("known") else {})


# Arithmetic


def test_each_kind_of_token_has_its_price() -> None:
    found = bill(usage(known=told(input=1, output=2, cache_read=4, cache_write=8)))
    assert found == Bill(15, 1 + 20 + 2 + 16, (ModelBill("known", 15, 39),))


def test_cache_writes_for_an_hour_are_among_the_writes_and_cost_more() -> None:
    found = bill(usage(known=told(cache_write=8, cache_write_1h=3)))
    assert found == Bill(8, 5 * 2 + 3 * 4, (ModelBill("known", 8, 22),))


def test_one_part_that_is_not_known_makes_the_sum_unknown_and_the_rest_stays_known() -> None:
    found = bill(usage(other=told(input=1), known=told(input=5, output=1), known2=told(output=1)))
    assert found.tokens == 8 and found.cost_usd is None
    assert found.models == (ModelBill("known", 6, 15), ModelBill("known2", 1, 10), ModelBill("other", 1, None))


def test_a_kind_without_a_price_matters_only_when_it_was_used() -> None:
    rates = {"input": 1.0, "output": 2.0}
    assert prices.cost({"input": 3, "output": 1, "cache_read": 0}, rates) == 5
    assert prices.cost({"input": 3, "output": 1, "cache_read": 1}, rates) is None


def test_a_model_that_was_not_used_does_not_spoil_the_sum() -> None:
    assert bill(usage(known=told(input=1), other=told(input=0))).cost_usd == 1


def test_what_is_not_recorded_is_not_free() -> None:
    assert bill({}) == Bill()
    assert bill({"models": {}}) == Bill()
    assert bill(usage(known=told(input=0, output=0))).cost_usd is None
    assert bill({**told(input=10), "models": {}}) == Bill(10)
    assert bill({**told(input=10), "models": {"known": told(input=9)}}).cost_usd is None, "one token is nobody's"


def test_what_the_client_itself_tells_wins() -> None:
    tally = {**usage(known=told(input=5), other=told(input=1)), "cost_usd": 0.25}
    assert bill(tally).cost_usd == 0.25
    assert [row.cost_usd for row in bill(tally).models] == [5, None]


@pytest.mark.parametrize("cost", [None, "1", True, -1, float("nan"), float("inf"), 1e9, 10**400, [1]])
def test_a_told_cost_that_is_none_does_not(cost: Any) -> None:
    assert bill({**usage(known=told(input=5)), "cost_usd": cost}).cost_usd == 5


@pytest.mark.parametrize("count", ["5", -1, 1.5, True, float("nan"), float("inf"), 10**15, 10**400, [], {}])
def test_what_is_no_number_of_tokens_is_unknown(count: Any) -> None:
    found = bill({**told(input=count, output=1), "models": {"known": told(input=count, output=1)}})
    assert found == Bill(None, None, (ModelBill("known", None, None),))


def test_more_writes_for_an_hour_than_writes_are_unknown() -> None:
    assert bill(usage(known=told(cache_write=1, cache_write_1h=2))) == Bill(
        None, None, (ModelBill("known", None, None),)
    )


def test_ten_thousand_models_are_cut_and_their_cost_is_unknown() -> None:
    found = bill(usage(**{f"known{i}": told(input=1) for i in range(10_000)}))
    assert found.tokens == 10_000 and found.cost_usd is None and len(found.models) == prices.MODELS_MAX


def test_no_sum_is_beyond_all_money() -> None:
    assert bill(usage(known=told(output=10**14))).cost_usd is None


SCALAR = (
    st.none() | st.booleans() | st.integers() | st.integers(0, 10**6) | st.floats() | st.text(max_size=3) | st.just([])
)
COUNTS = st.dictionaries(st.sampled_from([f"{key}_tokens" for key in prices.PRICE_KEYS]), SCALAR, max_size=5)
MODELS = st.dictionaries(st.sampled_from(["known", "known2", "other", ""]), COUNTS | SCALAR, max_size=3)
TALLY = st.builds(
    lambda counts, more: counts | more, COUNTS, st.fixed_dictionaries({"models": MODELS | SCALAR, "cost_usd": SCALAR})
)


@settings(max_examples=int(os.environ.get("MUSTER_EXAMPLES", "200")), deadline=None)
@given(TALLY)
def test_any_tally_has_a_bill(tally: dict[str, Any]) -> None:
    found = bill(tally)
    for row in (found, *found.models):
        assert row.tokens is None or 0 <= row.tokens < 5 * prices.TOKENS_MAX
        assert row.cost_usd is None or 0 <= row.cost_usd < prices.DOLLARS_MAX


# The library


def test_claude_costs_what_is_published(tmp_path: Path) -> None:
    # Claude Sonnet 4.5, dollars for a million: 3 in, 15 out, 0.30 read from the cache, 3.75 written to it, 6 for an hour.
    tally = usage(
        **{"claude-sonnet-4-5-20250929": told(input=12_345, output=6_789, cache_read=1_000_000, cache_write=40_000)}
    )
    (found,) = prices.bills([tally], str(tmp_path), {})
    assert found.cost_usd == pytest.approx(0.037035 + 0.101835 + 0.30 + 0.15)
    tally = usage(**{"claude-sonnet-4-5": told(cache_write=40_000, cache_write_1h=30_000)})
    assert prices.bills([tally], str(tmp_path), {})[0].cost_usd == pytest.approx(0.0375 + 0.18)


def test_gpt_costs_what_is_published_and_its_input_is_what_was_not_cached(tmp_path: Path) -> None:
    from genai_prices import Usage, calc_price

    # GPT-5: 1.25 in, 10 out, 0.125 from the cache. The library counts what was cached as part of the input; a tally does not.
    tally = usage(**{"gpt-5": told(input=100_000, output=20_000, cache_read=400_000, cache_write=0)})
    (found,) = prices.bills([tally], str(tmp_path), {})
    assert found.cost_usd == pytest.approx(0.125 + 0.2 + 0.05)
    whole = Usage(input_tokens=500_000, cache_read_tokens=400_000, output_tokens=20_000)
    assert found.cost_usd == pytest.approx(float(calc_price(whole, "gpt-5").total_price))


@pytest.mark.parametrize(
    ("model", "like"),
    [
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("openai/gpt-5", "gpt-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
    ],
)
def test_a_model_is_known_by_the_names_that_clients_have_for_it(tmp_path: Path, model: str, like: str) -> None:
    known = prices.table([model, like], str(tmp_path))
    assert known[model] and known[model] == known[like]


@pytest.mark.parametrize(
    "model", ["replay", "claude-of-nobody", "gpt-999", "", "\ud800\x00\n", "x" * 100_000, "[" * 200]
)
def test_a_model_that_the_library_does_not_know_is_unknown(tmp_path: Path, model: str) -> None:
    (found,) = prices.bills([usage(**{model: told(input=10)})], str(tmp_path), {})
    assert found == Bill(10, None, (ModelBill(model[: prices.NAME_MAX], 10, None),))


def test_the_library_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise AssertionError("it asked the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert prices.table(["claude-haiku-4-5", "unheard-of"], str(tmp_path))["claude-haiku-4-5"]


# The user's own prices


def test_a_stated_price_is_for_a_million_tokens_and_wins(tmp_path: Path) -> None:
    tally = usage(**{"claude-sonnet-4-5": told(input=1_000_000, output=1_000_000, cache_read=1_000_000)})
    (found,) = prices.bills([tally], str(tmp_path), {"claude-sonnet-4-5": {"input": 1, "output": 2.5}})
    assert found.cost_usd == pytest.approx(1 + 2.5 + 0.3), "what is not stated is the library's"


def test_what_nobody_stated_of_an_unheard_of_model_is_unknown(tmp_path: Path) -> None:
    stated = {"ours": {"input": 1.0, "output": 2.0}}
    plain, cached = usage(ours=told(input=2_000_000)), usage(ours=told(input=2_000_000, cache_read=1))
    assert [one.cost_usd for one in prices.bills([plain, cached], str(tmp_path), stated)] == [2.0, None]


def test_a_model_that_is_stated_whole_is_not_looked_up(tmp_path: Path) -> None:
    stated = {"ours": {"input": 1.0, "output": 2.0, "cache_read": 0.1, "cache_write": 1.25}}
    tally = usage(ours=told(cache_write=2_000_000, cache_write_1h=1_000_000))
    assert prices.bills([tally], str(tmp_path), stated)[0].cost_usd == 2.5
    assert not (tmp_path / "prices.json").exists()


# What is kept


class Counted:
    """The real library, with a note of how often it was loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.load = prices._library
        monkeypatch.setattr(prices, "_library", self)

    def __call__(self) -> Any:
        self.times += 1
        return self.load()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_the_library_is_loaded_once_for_a_model_known_or_not(tmp_path: Path, library: Counted) -> None:
    for _ in range(3):
        known = prices.table(["gpt-5", "unheard-of"], str(tmp_path))
    assert library.times == 1 and known["gpt-5"] and known["unheard-of"] is None
    prices.table(["gpt-5", "claude-haiku-4-5"], str(tmp_path))
    assert library.times == 2
    kept = json.loads((tmp_path / "prices.json").read_text())
    assert (kept["library"], kept["version"]) == ("genai-prices", prices.installed())
    assert set(kept["models"]) == {"gpt-5", "unheard-of", "claude-haiku-4-5"}
    assert kept["models"]["unheard-of"] is None
    assert kept["models"]["gpt-5"]["output"] == pytest.approx(10 / 1e6)


@pytest.mark.parametrize(("version", "times"), [("0.0.1", 1), ("999.0", 2)], ids=["older", "newer"])
def test_only_a_newer_library_is_asked_anew(
    tmp_path: Path, library: Counted, monkeypatch: pytest.MonkeyPatch, version: str, times: int
) -> None:
    prices.table(["gpt-5"], str(tmp_path))
    monkeypatch.setattr(prices, "installed", lambda: version)
    for _ in range(2):
        prices.table(["gpt-5"], str(tmp_path))
    assert library.times == times


@pytest.mark.parametrize(("days", "times"), [(6, 1), (8, 2), (-1, 2)])
def test_what_is_some_days_old_is_asked_anew(tmp_path: Path, library: Counted, days: int, times: int) -> None:
    prices.table(["gpt-5"], str(tmp_path))
    kept = prices.read(str(tmp_path / "prices.json"))
    prices.write(str(tmp_path / "prices.json"), kept._replace(resolved=kept.resolved - days * 86400))
    for _ in range(2):
        assert prices.table(["gpt-5"], str(tmp_path))["gpt-5"]
    assert library.times == times


def test_without_the_library_what_was_kept_counts_and_nothing_is_written(
    tmp_path: Path, library: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices.table(["gpt-5"], str(tmp_path))
    before = (tmp_path / "prices.json").read_bytes()
    monkeypatch.setattr(prices, "installed", lambda: "")
    known = prices.table(["gpt-5", "claude-haiku-4-5"], str(tmp_path))
    assert known["gpt-5"] and "claude-haiku-4-5" not in known
    assert library.times == 1 and (tmp_path / "prices.json").read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "null",
        '{"library": "other", "version": "99", "resolved": 1, "models": {"gpt-5": {"input": 9}}}',
        '{"library": "genai-prices", "version": "99", "resolved": "now", "models": {}}',
        '{"library": "genai-prices", "version": [], "resolved": 1e400, "models": []}',
        '{"library": "genai-prices", "version": "99", "resolved": 99e9, "models": {"gpt-5": {"input": 9}}}',
    ],
)
def test_a_damaged_file_is_made_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.json").write_text(text)
    known = prices.table(["gpt-5"], str(tmp_path))["gpt-5"]
    assert known and known["output"] == pytest.approx(10 / 1e6)
    assert prices.read(str(tmp_path / "prices.json")).models["gpt-5"] == known


def test_rates_that_are_no_rates_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    good = prices.Cache("1", 1.0, {"a": {"input": 1.0}, "b": None})
    prices.write(str(path), good._replace(models={**good.models, "c": {"input": -1.0}, "d": {"input": float("nan")}}))
    path.write_text(path.read_text().replace('"b": null', '"b": null, "e": 5, "f": {"input": "1"}'))
    assert prices.read(str(path)) == good


def test_where_nothing_can_be_written_prices_are_known_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert prices.table(["gpt-5"], str(tmp_path / "file" / "home"))["gpt-5"]


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    prices.table([f"old-{i}" for i in range(prices.CACHED_MODELS_MAX)], str(tmp_path))
    known = prices.table([f"new-{i}" for i in range(10)], str(tmp_path))
    assert "new-0" in known and "old-0" in known
    kept = prices.read(str(tmp_path / "prices.json")).models
    assert len(kept) == prices.CACHED_MODELS_MAX and "new-9" in kept


# As a user sees it


def record(world: World, name: str, tally: Any) -> None:
    """An agent with this tally beside it."""
    world.ok("create", name, "command", "--mode", "copy", "--no-connect", "--", "true")
    folder = world.muster_home / "agents" / str(world.agents()[name]["id"])
    (folder / "usage.json").write_text(tally if isinstance(tally, str) else json.dumps(tally))


def cells(world: World, *words: str) -> dict[str, str]:
    """The column COST of `list`, by name."""
    head, *lines = world.ok("list", *words).stdout.splitlines()
    at, end = head.index("COST"), head.index("LAST LINE")
    return {line.split()[0]: line[at:end].strip() for line in lines}


SONNET = usage(**{"claude-sonnet-4-5": told(input=1_000_000, output=100_000)})


def test_list_and_explain_show_dollars_where_they_are_known_and_never_0_where_not(world: World) -> None:
    record(world, "known", SONNET)
    record(world, "little", usage(**{"gpt-5": told(input=10)}))
    record(world, "mixed", usage(**{"gpt-5": told(output=1_000_000), "unheard-of": told(input=7)}))
    record(world, "told", {**usage(**{"unheard-of": told(input=7)}), "cost_usd": 1.5})
    record(world, "silent", "")
    assert cells(world) == {
        "known": "$4.50",
        "little": "<$0.01",
        "mixed": "1000007 tok",
        "told": "$1.50",
        "silent": "-",
    }
    rows = world.agents()
    assert rows["known"]["cost_usd"] == pytest.approx(4.5) and rows["told"]["cost_usd"] == 1.5
    assert (rows["silent"]["tokens"], rows["silent"]["cost_usd"], rows["silent"]["models"]) == (None, None, [])
    assert (rows["mixed"]["tokens"], rows["mixed"]["cost_usd"]) == (1_000_007, None)
    assert rows["mixed"]["models"] == [
        {"model": "gpt-5", "tokens": 1_000_000, "cost_usd": pytest.approx(10)},
        {"model": "unheard-of", "tokens": 7, "cost_usd": None},
    ]
    shown = [line.split() for line in world.ok("explain", "mixed").stdout.partition("\n\n")[2].splitlines()]
    assert shown == [
        ["MODEL", "TOKENS", "COST"],
        ["gpt-5", "1000000", "$10.00"],
        ["unheard-of", "7", "-"],
        ["all", "1000007", "-"],
    ]
    explained = world.ok("explain", "mixed", "--json").json
    assert {key: explained[key] for key in ("tokens", "cost_usd", "models")} == {
        key: rows["mixed"][key] for key in ("tokens", "cost_usd", "models")
    }


def test_only_a_list_that_meets_a_new_model_loads_the_library(world: World) -> None:
    record(world, "one", SONNET)
    assert "genai_prices" in loaded(world, "list")
    for words in (("list",), ("list", "--json"), ("explain", "one")):
        found = loaded(world, *words)
        assert not {name for name in found if name.partition(".")[0] in ("genai_prices", "pydantic")}
        assert sorted(found & HEAVY) == []
    record(world, "two", usage(**{"unheard-of": told(input=1)}))
    assert "genai_prices" in loaded(world, "list")
    assert "genai_prices" not in loaded(world, "list")


def bare(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    """muster where nothing but Python and muster is installed."""
    code = "import sys; from muster.cli.main import main; sys.exit(main())"
    env = {**world.env, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *words], env=env, cwd=world.repo, capture_output=True, text=True, check=False
    )


def test_without_the_library_a_cost_is_unknown_and_doctor_says_how_to_get_it(world: World) -> None:
    record(world, "one", SONNET)
    (row,) = json.loads(bare(world, "list", "--json").stdout)["agents"]
    assert (row["tokens"], row["cost_usd"]) == (1_100_000, None)
    assert row["models"] == [{"model": "claude-sonnet-4-5", "tokens": 1_100_000, "cost_usd": None}]
    assert "1100000 tok" in bare(world, "list").stdout
    assert set(prices.read(str(world.muster_home / "prices.json")).models) == {"replay"}, "as it was before"
    told = bare(world, "doctor")
    (line,) = [line for line in told.stdout.splitlines() if " prices " in line]
    assert line.split() == ["local", "prices", "missing", "-", *prices.INSTALL.split()]
    assert told.returncode == 0
    (line,) = [line for line in world.ok("doctor").stdout.splitlines() if " prices " in line]
    assert line.split() == ["local", "prices", "ok", "genai-prices", prices.installed()]


HOSTILE = [
    '{"input_tokens": "many", "models": "all", "cost_usd": "much"}',
    '{"input_tokens": -1, "cost_usd": -1, "models": {"gpt-5": {"input_tokens": -1}}}',
    '{"input_tokens": NaN, "cost_usd": NaN, "models": {"gpt-5": {"input_tokens": Infinity}}}',
    '{"cost_usd": 1' + "0" * 400 + ', "models": {"gpt-5": {"input_tokens": 1' + "0" * 400 + "}}}",
    '{"cost_usd": 1' + "0" * 5000 + "}",
    '{"models": {"gpt-5": {"input_tokens": [[[[1]]]]}, "": null, "a\\u0000\\u001b[31m\\ud800": {"input_tokens": {}}}}',
    json.dumps(usage(**{f"m{i}": told(input=1) for i in range(10_000)})),
    json.dumps(usage(**{f"m{i}": told(input=1) for i in range(1000)})),
    '{"models": ' + "[" * 50_000,
    '{"models": {"' + "x" * 90_000 + '": {"input_tokens": 1}}}',
    "[]",
    "no JSON",
]


def test_a_hostile_tally_is_unknown_and_spoils_no_other(world: World) -> None:
    record(world, "good", SONNET)
    world.ok("create", "bad", "command", "--count", str(len(HOSTILE)), "--mode", "copy", "--no-connect", "--", "true")
    bad = [f"bad-{i + 1}" for i in range(len(HOSTILE))]
    rows = world.agents()
    for name, tally in zip(bad, HOSTILE, strict=True):
        (world.muster_home / "agents" / str(rows[name]["id"]) / "usage.json").write_text(tally)
    for _ in range(2):
        rows = world.agents()
        assert rows["good"]["cost_usd"] == pytest.approx(4.5)
        assert [rows[name]["cost_usd"] for name in bad] == [None] * len(bad)
        assert max(len(rows[name]["models"]) for name in bad) == prices.MODELS_MAX
    assert cells(world)["good"] == "$4.50"
    for name in bad:
        shown = world.ok("explain", name).stdout
        assert "\x1b" not in shown and len(shown) < 50_000


def test_a_strangers_project_states_no_prices(world: World) -> None:
    record(world, "one", SONNET)
    (world.repo / ".muster").mkdir()
    (world.repo / ".muster" / "config.toml").write_text('[prices."claude-sonnet-4-5"]\ninput = 0\noutput = 0\n')
    assert cells(world) == {"one": "$4.50"}
    world.ok("trust")
    assert cells(world) == {"one": "$0.00"}


# Who counts


def test_the_tally_of_claude_tells_what_is_cached_for_an_hour(tmp_path: Path) -> None:
    cached = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30}
    said = {"input_tokens": 1, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 5, "output_tokens": 2}
    message = {"id": "m1", "model": "claude-sonnet-4-5", "usage": {**said, "cache_creation": cached}}
    line = json.dumps({"type": "assistant", "message": message}, separators=(",", ":"))
    (tmp_path / "talk.jsonl").write_text(f"{line}\n{line}\n")
    script = SRC / "muster" / "agents" / "claude" / "tally.sh"
    env = {**os.environ, "MUSTER_AGENT_DIR": str(tmp_path)}
    subprocess.run(["sh", script, tmp_path / "talk.jsonl"], env=env, check=True)
    counts = told(input=1, output=2, cache_read=5, cache_write=40, cache_write_1h=30)
    tally = json.loads((tmp_path / "usage.json").read_text())
    assert tally == {**counts, "models": {"claude-sonnet-4-5": counts}}
    (found,) = prices.bills([tally], str(tmp_path), {})
    assert found.cost_usd == pytest.approx((1 * 3 + 2 * 15 + 5 * 0.3 + 10 * 3.75 + 30 * 6) / 1e6)
