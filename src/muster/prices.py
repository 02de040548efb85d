"""What recorded usage costs: tokens times rates, in dollars. A rate is the one that the user stated, else the one of the library
genai-prices. What the library said of a model is kept in `prices.json`, so it is loaded only for a model that was not seen before;
it fetches nothing. What an agent recorded is hostile input: it is counted, or it is unknown.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from .config import PRICE_KEYS
from .model import Bill, ModelBill

LIBRARY = "genai-prices"
INSTALL = "pip install 'muster-agents[prices]'"
#: Prices change by their date too, so what the same library said is asked for again.
KEPT_DAYS = 7
KEPT_MODELS = 1000
MODELS_MAX = 64
NAME_MAX = 200
TOKENS_MAX = 10**15
DOLLARS_MAX = 1e9
NUMBER_MAX = 1e15

#: Dollars per token, by the keys of `[prices]`. A key that is missing is a price that nobody knows.
Rates = Mapping[str, float]


def bills(usages: Iterable[Mapping[str, Any]], home: str, stated: Mapping[str, Mapping[str, float]]) -> list[Bill]:
    """The bill of each usage. `stated` is the user's `[prices]`; `home` is where the library's prices are kept."""
    usages = list(usages)
    own = {model: per_token(prices) for model, prices in stated.items()}
    seen = dict.fromkeys(model for usage in usages for model in _models(usage))
    needed = [model for model in seen if len(own.get(model, {})) < len(PRICE_KEYS) and len(model) <= NAME_MAX]
    known = table(needed, home) if needed else {}

    def rates(model: str) -> Rates:
        return {**(known.get(model) or {}), **own.get(model, {})}

    return [bill(usage, rates) for usage in usages]


def bill(usage: Mapping[str, Any], rates: Callable[[str], Rates]) -> Bill:
    """What a `usage.json` comes to. The client's own word on the cost counts more than ours."""
    rows = []
    for model, told in _models(usage).items():
        used = _used(told)
        rows.append(ModelBill(model[:NAME_MAX], _tokens(used), cost(used, rates(model))))
    rows.sort(key=lambda row: (-(row.tokens or 0), row.model))
    tokens = _tokens(_used(usage))
    told = usage.get("cost_usd")
    if _is_number(told) and told < DOLLARS_MAX:
        return Bill(tokens, float(told), tuple(rows))
    spent = [row for row in rows if row.tokens != 0]
    every = len(_dict(usage.get("models"))) == len(rows) and sum(row.tokens or 0 for row in spent) >= (tokens or 0)
    # One part that is not known, and so is the sum.
    total = _dollars([row.cost_usd for row in spent]) if spent and every else None
    return Bill(tokens, total, tuple(rows))


def cost(used: Mapping[str, int] | None, rates: Rates) -> float | None:
    """Dollars; None when there are tokens of a kind whose price is not known, or nobody knows how many there are."""
    if used is None:
        return None
    counts = dict(used)
    # Those that are kept for an hour are among the cache writes, and have a price of their own.
    counts["cache_write"] = counts.get("cache_write", 0) - counts.get("cache_write_1h", 0)
    priced = [(count, rates.get(key)) for key, count in counts.items()]
    if not rates or any(rate is None for count, rate in priced if count):
        return None
    return _dollars([count * (rate or 0) for count, rate in priced])


def per_token(prices: Mapping[str, float]) -> dict[str, float]:
    """The user's prices, which are for a million tokens. A cache write costs what was stated, for however long it is kept."""
    rates = {key: value / 1e6 for key, value in prices.items()}
    if "cache_write" in rates:
        rates.setdefault("cache_write_1h", rates["cache_write"])
    return rates


def _dollars(parts: list[float | None]) -> float | None:
    if any(part is None for part in parts):
        return None
    total = sum(part or 0 for part in parts)
    return round(total, 10) if total < DOLLARS_MAX else None


def _models(usage: Mapping[str, Any]) -> dict[str, Any]:
    return dict(itertools.islice(_dict(usage.get("models")).items(), MODELS_MAX))


def _used(told: Any) -> dict[str, int] | None:
    """Tokens by the keys of `[prices]`; None when there are none, or one of them is no number of tokens."""
    used: dict[str, int] = {}
    for key in PRICE_KEYS:
        count = _dict(told).get(f"{key}_tokens")
        if count is None:
            continue
        if type(count) is not int or not 0 <= count < TOKENS_MAX:
            return None
        used[key] = count
    return used if used and used.get("cache_write_1h", 0) <= used.get("cache_write", 0) else None


def _tokens(used: Mapping[str, int] | None) -> int | None:
    return None if used is None else sum(count for key, count in used.items() if key != "cache_write_1h")


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 <= value < NUMBER_MAX


# What the library knows, and what is kept of it


class Kept(NamedTuple):
    """`prices.json`: what the library said of each model that was ever seen, None for one that it does not know."""

    version: str = ""
    resolved: float = 0.0
    models: Mapping[str, Rates | None] = {}


def table(models: Iterable[str], home: str) -> Mapping[str, Rates | None]:
    """The library's rates of these models. It is loaded when one of them is new, the library is, or the rates are some days old."""
    path = os.path.join(home, "prices.json")
    kept = read(path)
    version = installed()
    wanted = list(models)
    now = time.time()
    current = _parts(kept.version) >= _parts(version) and 0 <= now - kept.resolved < KEPT_DAYS * 86400
    if not version or (current and all(model in kept.models for model in wanted)):
        return kept.models
    look = _library()
    if look is None:
        return kept.models
    found = {model: look(model) for model in dict.fromkeys([*wanted, *kept.models])}
    write(path, Kept(version, now, dict(itertools.islice(found.items(), KEPT_MODELS))))
    return found


def installed() -> str:
    """The library's version, read off the names of its folders: to import even its version would take longer than a `list`."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "genai_prices")) and os.access(folder or ".", os.R_OK):
            for name in os.listdir(folder or "."):
                if found := re.fullmatch(r"genai_prices-([^-]+)\.dist-info", name):
                    return found[1]
    return ""


def read(path: str) -> Kept:
    """What is kept; nothing where there is no such file, or another one."""
    try:
        with open(path, encoding="utf-8") as file:
            told = _dict(json.load(file))
    except (OSError, ValueError, RecursionError):
        return Kept()
    if told.get("library") != LIBRARY or not _is_number(told.get("resolved")):
        return Kept()
    models: dict[str, Rates | None] = {}
    for model, rates in _dict(told.get("models")).items():
        if rates is None or (isinstance(rates, dict) and all(map(_is_number, rates.values()))):
            models[model] = rates
    return Kept(str(told.get("version", "")), told["resolved"], models)


def write(path: str, kept: Kept) -> None:
    told = {"library": LIBRARY, **kept._asdict()}
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)
        os.replace(temporary, path)
    except OSError:
        pass  # a full or read-only disk: it is looked up anew next time


def _library() -> Callable[[str], Rates | None] | None:
    """What looks up a model in the library; None when that cannot be loaded."""
    try:
        from genai_prices import Usage, calc_price
    except Exception:  # an installation that is broken in whatever way is none
        return None
    # By what it asks for so many tokens and not by its tables: it knows what stands in for a price that a model does not have.
    # It counts cached tokens as part of the input. So few are below every tier for long prompts, which goes by the request.
    some = 1000
    samples = {
        "input": Usage(input_tokens=some),
        "output": Usage(input_tokens=0, output_tokens=some),
        "cache_read": Usage(input_tokens=some, cache_read_tokens=some),
        "cache_write": Usage(input_tokens=some, cache_write_tokens=some),
        "cache_write_1h": Usage(input_tokens=some, cache_write_tokens=some, cache_write_1h_tokens=some),
    }

    def look(model: str) -> Rates | None:
        rates = {}
        try:
            for key, usage in samples.items():
                # By this name it also takes models with their provider in front: anthropic/claude-sonnet-4-5.
                price = calc_price(usage, model, provider_id="litellm")
                if price.model_price.input_mtok is None or price.model_price.output_mtok is None:
                    return None  # priced by something else than tokens
                rates[key] = float((price.input_price + price.output_price) / some)
        except Exception:  # LookupError for a model it does not know; whatever else it raises, the price is not known
            return None
        return rates

    return look


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
