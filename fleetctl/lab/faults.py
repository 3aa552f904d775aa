"""Lab, lab layer: faults that are switched on while an emulated engine runs, and the file that carries them. Never touches a process."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MetricsFault = Literal["ok", "gone", "nan"]

ARGUMENTS: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "latency": {"factor": (2.0, 0.01, 1000.0)},
    "tail": {"share": (0.05, 0.0, 1.0), "factor": (3.0, 0.01, 1000.0)},
    "errors": {"ratio": (0.05, 0.0, 1.0)},
    "wrong_tokens": {"ratio": (0.2, 0.0, 1.0)},
    "hang": {},
    "crash": {},
    "slow_start": {"seconds": (5.0, 0.0, 3600.0)},
}
"""Numeric arguments per fault: default, least, most."""

CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "metrics": {"state": ("gone", "nan")},
    "kv_cache": {"type": ("q4_0", "q8_0", "f16")},
}
"""Arguments that are one of a few words; the first is the default."""

KINDS = (*ARGUMENTS, *CHOICES)
"""All faults. `kv_cache` is for the real LLM, which knows `crash` besides; an emulated engine knows all the others."""

LLM_KINDS = ("kv_cache", "crash")
EMULATED_KINDS = tuple(k for k in KINDS if k != "kv_cache")

FaultArgs = Mapping[str, float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What is wrong with a server at the moment; the default is nothing.

    Args:
        latency_factor: every answer takes this times as long, above 0.
        tail_share: share of answers that also take `tail_factor` times as long, 0 to 1.
        error_ratio: share of requests answered 500, 0 to 1.
        wrong_token_ratio: share of token positions that differ from the right ones, 0 to 1.
        hangs: completions are accepted and never answered (/health still answers, as with a stuck GPU).
        crashes: the process ends at once, also after a restart, until cleared.
        slow_start_s: completions and /health answer 503 for this long after the start, or after the fault was set.
        metrics: /metrics answers 404 ("gone") or NaN in every sample ("nan").
        kv_cache: cache type that the real LLM takes instead of its own; empty for none.
    """

    latency_factor: float = 1.0
    tail_share: float = 0.0
    tail_factor: float = 1.0
    error_ratio: float = 0.0
    wrong_token_ratio: float = 0.0
    hangs: bool = False
    crashes: bool = False
    slow_start_s: float = 0.0
    metrics: MetricsFault = "ok"
    kv_cache: str = ""


NONE = Faults()


def check_fault(kind: str, args: FaultArgs) -> dict[str, float | str]:
    """Return the complete arguments of one fault, defaults filled in.

    Raises:
        ValueError: no such fault, an unknown argument, or a value out of range; the text names what is allowed.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no fault: use one of {', '.join(KINDS)}")
    numbers, words = ARGUMENTS.get(kind, {}), CHOICES.get(kind, {})
    unknown = sorted(set(args) - set(numbers) - set(words))
    if unknown:
        allowed = ", ".join((*numbers, *words)) or "no argument"
        raise ValueError(f"fault {kind} has no {', '.join(unknown)}: it takes {allowed}")
    whole: dict[str, float | str] = {}
    for name, (default, least, most) in numbers.items():
        whole[name] = _number(f"fault {kind}: {name}", args.get(name, default), least, most)
    for name, choices in words.items():
        given = args.get(name, choices[0])
        if given not in choices:
            raise ValueError(f"fault {kind}: {name} is {given!r}, not one of {', '.join(choices)}")
        whole[name] = given
    return whole


def _number(what: str, given: object, least: float, most: float) -> float:
    try:
        value = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if isinstance(given, bool) or not least <= value <= most:
        raise ValueError(f"{what} is {given!r}, not a number from {least:g} to {most:g}")
    return value


def parse_faults(data: object) -> Faults:
    """Read what a faults file holds: an object of kind to arguments.

    Raises:
        ValueError: a shape, kind, argument or value that is not allowed.
    """
    if not isinstance(data, dict):
        raise ValueError("faults must be an object of kind to arguments")
    whole: dict[str, dict[str, float | str]] = {}
    for kind, args in data.items():
        if not isinstance(args, dict):
            raise ValueError(f"fault {kind}: arguments must be an object")
        whole[str(kind)] = check_fault(str(kind), args)

    def number(kind: str, name: str, otherwise: float) -> float:
        return float(whole[kind][name]) if kind in whole else otherwise

    state = whole["metrics"]["state"] if "metrics" in whole else "ok"
    return Faults(
        latency_factor=number("latency", "factor", 1.0),
        tail_share=number("tail", "share", 0.0),
        tail_factor=number("tail", "factor", 1.0),
        error_ratio=number("errors", "ratio", 0.0),
        wrong_token_ratio=number("wrong_tokens", "ratio", 0.0),
        hangs="hang" in whole,
        crashes="crash" in whole,
        slow_start_s=number("slow_start", "seconds", 0.0),
        metrics="gone" if state == "gone" else "nan" if state == "nan" else "ok",
        kv_cache=str(whole["kv_cache"]["type"]) if "kv_cache" in whole else "",
    )


def faults_path(config: Path) -> Path:
    """Return where the faults of the unit described in `config` (`<unit>.json`) lie: `<unit>.faults.json` beside it."""
    return config.with_name(config.stem + ".faults.json")


class FaultsFile:
    """A faults file that is read again when it was replaced; a bad file keeps what stood and says so on stderr."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.current = NONE
        self._seen: tuple[int, int, int] | None = None

    def poll(self) -> bool:
        """Look once; return whether the faults changed. Costs one stat where nothing did."""
        try:
            found = os.stat(self.path)
            seen: tuple[int, int, int] | None = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:
            seen = None
        if seen == self._seen:
            return False
        self._seen = seen
        before = self.current
        try:
            self.current = parse_faults(json.loads(self.path.read_bytes())) if seen else NONE
        except FileNotFoundError:
            self.current = NONE
        except (OSError, ValueError) as e:
            sys.stderr.write(f"faults file {self.path} is kept out: {e}\n")
            sys.stderr.flush()
        return self.current != before


def write_faults(path: Path, faults: Mapping[str, FaultArgs]) -> None:
    """Replace a faults file in one step; no fault at all removes it."""
    if not faults:
        path.unlink(missing_ok=True)
        return
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.write_text(json.dumps(faults, sort_keys=True) + "\n")
    os.replace(new, path)


def read_faults(path: Path) -> dict[str, dict[str, float | str]]:
    """Return what a faults file holds, checked; empty where there is none.

    Raises:
        ValueError: the file is not one of faults.
    """
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    parse_faults(data)
    return {kind: check_fault(kind, args) for kind, args in data.items()}
