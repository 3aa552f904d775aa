"""Evidence, formats layer: kinds of evidence that a cell can name beside its router's log, and their settings. Never asks one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import NamedTuple

from fleetctl.domain.metrics import ENGINES
from fleetctl.formats import quantities as q

LOG = "log"
"""The router's log, which every cell has."""
_COUNTER = "counter."
_NAMED = (_COUNTER, "canary_argv.", "baseline_argv.")
"""Settings that come with a name of the user's own."""
LOGS = "logs"
"""Engines' logs: they tell hard faults and count no request."""


class EvidenceSpec(NamedTuple):
    """One kind: what it is, the ladder metrics that it tells, whether a percentage can be shown from them, its settings and secrets."""

    text: str
    metrics: frozenset[str]
    has_records: bool
    settings: Mapping[str, str]
    secrets: Mapping[str, str]


_ENGINES = {
    "baseline_engine": f"Whose names the baseline's series have: {', '.join(ENGINES)}. Left out: the workload's engine.",
    "canary_engine": "The same of the canary.",
    "baseline_version": "Version of the baseline's engine. Left out: the workload's.",
    "canary_version": "The same of the canary.",
    "baseline_gpus": "GPU exporters of the baseline's hosts, host:port, separated by spaces.",
    "canary_gpus": "The same of the canary; an unhealthy GPU or uncorrected ECC there trips the breaker.",
    "settle": "How long the slowest normal request takes; counting begins that much after each step. Default 30s.",
}
_BUCKETS = frozenset({"latency", "ttft", "token_time"})

EVIDENCE: Mapping[str, EvidenceSpec] = {
    "probes": EvidenceSpec(
        "Paired probes: the same prompt to both arms, streamed; exact times, tokens and log-probabilities, also at low traffic",
        frozenset({"ttft", "token_time", "nll"}),
        True,
        {
            "pairs_per_s": "Default 1.",
            "max_tokens": "Of an answer, from 2. Default 32.",
            "limit": "Longest wait for an answer. Default 30s.",
            "api": "chat (the default) or completions.",
            "prompts": "A file of JSON lines with a prompt each, relative to the workspace. Left out: built-in ones of three lengths.",
            "via": "router (the default): through the cell's router, pinned; endpoints: to the replicas themselves.",
            "least": "Pairs from which the baseline's quantiles are frozen. Default 200.",
        },
        {},
    ),
    "replay": EvidenceSpec(
        "Lane replay: users' recorded requests sent to both arms, as fast as the workload's shadow allows; for cells of few requests",
        frozenset({"latency", "ttft", "token_time", "nll"}),
        True,
        {
            "recording": "An encrypted file of ours (0600), relative to the workspace; its first line says cell, region, expiry, opt-in.",
            "opted_out": "A file of tenants who opted out, one a line, relative to the workspace; their requests are sent no more.",
            "max_tokens": "Most that an answer may have, from 2; a request that asked for fewer gets fewer. Default 64.",
            "limit": "Longest wait for an answer. Default 30s.",
            "via": "router (the default): through the cell's router, pinned; endpoints: to the replicas themselves.",
            "least": "Pairs from which the baseline's quantiles are frozen. Default 200.",
        },
        {"key": "The recording's key: 32 bytes in base64 (`openssl rand -base64 32`)."},
    ),
    "scrape": EvidenceSpec(
        "Counters from the engines' own metrics pages: detection and shares over bounds, no percentage",
        _BUCKETS,
        False,
        {"every": "Least time between two scrapes. Default 5s.", "ca_file": "A certificate authority to trust.", **_ENGINES},
        {"key": "Sent as bearer token."},
    ),
    "prometheus": EvidenceSpec(
        "Counters that Prometheus scraped, and the fleet file's own counters",
        _BUCKETS,
        False,
        {
            "url": "Up to, not with, /api/v1.",
            "label": "Label whose value is a replica's host:port. Default instance.",
            "arm_label": "Label with the value baseline or canary, of your own counters. Default arm.",
            "counter.NAME": "Your own counter as a share, `events_series / all_series`; its guardrail is counter_NAME, in points.",
            "ca_file": "A certificate authority to trust.",
            **_ENGINES,
        },
        {"token": "Sent as bearer token."},
    ),
    LOGS: EvidenceSpec(
        "Logs of engines and drivers: hard faults that they name (HIP and HSA errors, XID, ECC) trip the breaker",
        frozenset(),
        False,
        {
            "canary_files": "Log files of the canary's engines, separated by spaces, relative to the workspace.",
            "canary_argv.NAME": "A command that prints a replica's log, such as `journalctl -o json --since {since} -u vllm`; no shell.",
            "baseline_files": "The same of the baseline: a fault on both arms trips nothing.",
            "baseline_argv.NAME": "The same of the baseline.",
            "every": "Time between two readings. Default 2s.",
        },
        {},
    ),
    "recording": EvidenceSpec(
        "Attempts that another tool records as JSON lines (docs/explanation/evidence-sources.md)",
        frozenset({"latency", "ttft", "token_time", "nll"}),
        True,
        {"path": "A folder of <cell>-<YYYYMMDD>.jsonl files, or one file, relative to the workspace."},
        {},
    ),
}


_NEEDED = {"prometheus": ("url",), "recording": ("path",), "replay": ("recording", "opted_out")}
_SECRETS_NEEDED = {"replay": ("key",)}


def check_evidence(kind: str, settings: Mapping[str, str], secrets: Mapping[str, object]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a source of evidence, with the place."""
    spec = EVIDENCE.get(kind)
    if spec is None:
        near = get_close_matches(kind, EVIDENCE, n=1)
        yield ("kind",), f"must be {', '.join(EVIDENCE)}, not {kind!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
        return
    for what, given, known in (("settings", settings, spec.settings), ("secrets", secrets, spec.secrets)):
        for key in given:
            if key not in known and not any(key.startswith(p) and f"{p}NAME" in known for p in _NAMED):
                near = get_close_matches(key, known, n=1)
                yield (what, key), f"unknown key {key!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
    for key, text in settings.items():
        wrong = _wrong_value(key, text)
        if wrong:
            yield ("settings", key), wrong
    if kind == LOGS and not any(k.startswith(("canary_files", "canary_argv.")) for k in settings):
        yield ("settings",), "canary_files or canary_argv.NAME is missing"
    for needed in _NEEDED.get(kind, ()):
        if not settings.get(needed):
            yield ("settings",), f"{needed} is missing"
    for needed in _SECRETS_NEEDED.get(kind, ()):
        if needed not in secrets:
            yield ("secrets",), f"{needed} is missing"


def _wrong_value(key: str, text: str) -> str:
    if key in ("settle", "every", "limit"):
        try:
            return "" if 0.1 <= q.parse_duration(text).total_seconds() <= 3_600 else f"{text!r} is not from 100ms to 1h"
        except ValueError as e:
            return str(e)
    if key in ("pairs_per_s", "max_tokens", "least"):
        least, most = {"pairs_per_s": (0.01, 100.0), "max_tokens": (2.0, 4_096.0), "least": (20.0, 3_000.0)}[key]
        try:
            return "" if least <= float(text) <= most else f"{text!r} is not from {least:g} to {most:g}"
        except ValueError:
            return f"{text!r} is no number"
    choices = {"api": ("chat", "completions"), "via": ("router", "endpoints"), "baseline_engine": ENGINES, "canary_engine": ENGINES}.get(
        key
    )
    if choices is not None and text not in choices:
        return f"must be {', '.join(choices)}, not {text[:40]!r}"
    if key.startswith(_COUNTER):
        return _wrong_counter(key, text)
    return _wrong_argv(key, text) if key.startswith(_NAMED) else ""


def _wrong_argv(key: str, text: str) -> str:
    name = key.partition(".")[2]
    if not name.replace("-", "a").replace("_", "a").isalnum() or len(name) > 60:
        return f"{name[:40]!r} is no name of a replica: use letters, digits, '-' and '_'"
    try:
        argv = argv_of(text)
    except ValueError as e:
        return f"is no command: {e}"
    if not argv:
        return "is no command"
    return (
        "" if any("{since}" in a or "{since_iso}" in a for a in argv) else "needs {since} or {since_iso}: only what is new may be printed"
    )


def argv_of(text: str) -> tuple[str, ...]:
    """Return the words of a command line, quotes honoured; nothing else of a shell is.

    Raises:
        ValueError: a quote that does not end.
    """
    return tuple(shlex.split(text))


def _wrong_counter(key: str, text: str) -> str:
    name = key.removeprefix(_COUNTER)
    parts = [p.strip() for p in text.split(" / ")]
    if not name.replace("_", "a").isalnum() or not name.islower() or len(name) > 40:
        return f"{name[:40]!r} is no name of a counter: use a-z, 0-9 and '_'"
    return "" if len(parts) == 2 and all(parts) else "write it as `events_series / all_series`"


def metrics_of(kinds: Mapping[str, str], names: tuple[str, ...], *, streaming: bool) -> tuple[frozenset[str], frozenset[str]]:
    """Return the ladder metrics that a cell's sources tell, and those of them from which a percentage can be shown.

    Args:
        kinds: kind by name of source; names: of the cell's sources; streaming: then the log has no latency.
    """
    told = set() if streaming or LOG not in names else {"latency"}
    exact = set(told)
    for name in names:
        spec = EVIDENCE.get(kinds.get(name, ""))
        if spec is not None:
            told |= spec.metrics
            exact |= spec.metrics if spec.has_records else set()
    return frozenset(told), frozenset(exact)
