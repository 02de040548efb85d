"""Convert recorded usage to dollars: tokens times rates.

The user's own rates win over those of the library genai-prices. The library takes long to load, so its answers are cached in
`prices.json`, and it is loaded only for new models; it never uses the network. Usage that an agent recorded is hostile input:
what is not a valid count is unknown.
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
#: Some prices of the library depend on the date, so cached ones expire.
CACHE_DAYS = 7
CACHED_MODELS_MAX = 1000
MODELS_MAX = 64
NAME_MAX = 200
TOKENS_MAX = 10**15
DOLLARS_MAX = 1e9
NUMBER_MAX = 1e15

#: Dollars per token, by the keys of `[prices]`. A missing key is an unknown price.
Rates = Mapping[str, float]


def bills(usages: Iterable[Mapping[str, Any]], home: str, stated: Mapping[str, Mapping[str, float]]) -> list[Bill]:
    """Return the bill of each usage. `stated` is the user's `[prices]`; `home` holds the cache of the library's prices."""
    usages = list(usages)
    own = {model: per_token(prices) for model, prices in stated.items()}
    seen = dict.fromkeys(model for usage in usages for model in _models(usage))
    needed = [model for model in seen if len(own.get(model, {})) < len(PRICE_KEYS) and len(model) <= NAME_MAX]
    known = table(needed, home) if needed else {}

    def rates(model: str) -> Rates:
        return {**(known.get(model) or {}), **own.get(model, {})}

    return [bill(usage, rates) for usage in usages]


def bill(usage: Mapping[str, Any], rates: Callable[[str], Rates]) -> Bill:
    """Return the bill of one `usage.json`. A total that the client itself reports wins over the computed one."""
    rows = []
    for model, counts in _models(usage).items():
        used = _used(counts)
        rows.append(ModelBill(model[:NAME_MAX], _tokens(used), cost(used, rates(model))))
    rows.sort(key=lambda row: (-(row.tokens or 0), row.model))
    tokens = _tokens(_used(usage))
    total_usd = usage.get("cost_usd")
    if _is_number(total_usd) and total_usd < DOLLARS_MAX:
        return Bill(tokens, float(total_usd), tuple(rows))
    spent = [row for row in rows if row.tokens != 0]
    every = len(_dict(usage.get("models"))) == len(rows) and sum(row.tokens or 0 for row in spent) >= (tokens or 0)
    # Any unknown part makes the total unknown.
    total = _dollars([row.cost_usd for row in spent]) if spent and every else None
    return Bill(tokens, total, tuple(rows))


def cost(used: Mapping[str, int] | None, rates: Rates) -> float | None:
    """Return the price in dollars, or None if a count is unknown or tokens have an unknown price."""
    if used is None:
        return None
    counts = dict(used)
    # One-hour cache writes are counted among the cache writes and have a price of their own.
    counts["cache_write"] = counts.get("cache_write", 0) - counts.get("cache_write_1h", 0)
    priced = [(count, rates.get(key)) for key, count in counts.items()]
    if not rates or any(rate is None for count, rate in priced if count):
        return None
    return _dollars([count * (rate or 0) for count, rate in priced])


def per_token(prices: Mapping[str, float]) -> dict[str, float]:
    """Convert the user's prices, which are for a million tokens. A cache write costs the same however long it is kept."""
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


def _used(usage: Any) -> dict[str, int] | None:
    """Return the tokens by the keys of `[prices]`, or None if there are none or a count is invalid."""
    used: dict[str, int] = {}
    for key in PRICE_KEYS:
        count = _dict(usage).get(f"{key}_tokens")
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


# The library and its cache


class Cache(NamedTuple):
    """The contents of `prices.json`: the library's rates of each model ever seen, None for models that it does not know."""

    version: str = ""
    resolved: float = 0.0
    models: Mapping[str, Rates | None] = {}


def table(models: Iterable[str], home: str) -> Mapping[str, Rates | None]:
    """Return the library's rates of these models. It is loaded if a model or the library is new, or the cache has expired."""
    path = os.path.join(home, "prices.json")
    cache = read(path)
    version = installed()
    wanted = list(models)
    now = time.time()
    current = _parts(cache.version) >= _parts(version) and 0 <= now - cache.resolved < CACHE_DAYS * 86400
    if not version or (current and all(model in cache.models for model in wanted)):
        return cache.models
    look = _library()
    if look is None:
        return cache.models
    found = {model: look(model) for model in dict.fromkeys([*wanted, *cache.models])}
    write(path, Cache(version, now, dict(itertools.islice(found.items(), CACHED_MODELS_MAX))))
    return found


def installed() -> str:
    """Return the library's version from its folder name: importing it, even for the version, takes longer than a `list`."""
    for folder in sys.path:
        if os.path.isdir(os.path.join(folder, "genai_prices")) and os.access(folder or ".", os.R_OK):
            for name in os.listdir(folder or "."):
                if found := re.fullmatch(r"genai_prices-([^-]+)\.dist-info", name):
                    return found[1]
    return ""


def read(path: str) -> Cache:
    """Read the cache. It is empty if the file is missing, damaged or of another library."""
    try:
        with open(path, encoding="utf-8") as file:
            data = _dict(json.load(file))
    except (OSError, ValueError, RecursionError):
        return Cache()
    if data.get("library") != LIBRARY or not _is_number(data.get("resolved")):
        return Cache()
    models: dict[str, Rates | None] = {}
    for model, rates in _dict(data.get("models")).items():
        if rates is None or (isinstance(rates, dict) and all(map(_is_number, rates.values()))):
            models[model] = rates
    return Cache(str(data.get("version", "")), data["resolved"], models)


def write(path: str, cache: Cache) -> None:
    data = {"library": LIBRARY, **cache._asdict()}
    temporary = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
        os.replace(temporary, path)
    except OSError:
        pass  # on a full or read-only disk, the next call looks the prices up again


def _library() -> Callable[[str], Rates | None] | None:
    """Return a function that looks up a model in the library, or None if the library cannot be loaded."""
    try:
        from genai_prices import Usage, calc_price
    except Exception:  # whatever is wrong with a broken installation, it cannot be used
        return None
    # Rates are computed from the price of sample requests instead of read from its tables, because the library fills in missing
    # prices. It counts cached tokens as part of the input. The samples are small enough to stay below every long-prompt tier.
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
                # With this provider id it also accepts names with a provider prefix: anthropic/claude-sonnet-4-5.
                price = calc_price(usage, model, provider_id="litellm")
                if price.model_price.input_mtok is None or price.model_price.output_mtok is None:
                    return None  # priced by something other than tokens
                rates[key] = float((price.input_price + price.output_price) / some)
        except Exception:  # LookupError for an unknown model; after any other error the price is unknown too
            return None
        return rates

    return look


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
