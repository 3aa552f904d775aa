"""Plan, pure layer: which runs kept what an SLO promises of the first token and of each token after it. Never guesses, never I/O.

A curve of throughput over latency is known at a few points: MLPerf's scenarios, each with its own limits, and the user's own runs. A point
counts for a workload only where it kept at least what the workload promises; a point that nobody timed keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleetctl.domain.catalog import Performance
from fleetctl.domain.workload import Slo, Workload

LIMITS_MS: Mapping[tuple[str, str], tuple[float, float]] = {
    ("llama2-70b", "online"): (2000.0, 200.0),
    ("llama2-70b", "realtime"): (450.0, 40.0),
    ("mixtral-8x7b", "online"): (2000.0, 200.0),
    ("llama3.1-8b", "online"): (2000.0, 100.0),
    ("llama3.1-405b", "online"): (6000.0, 175.0),
    ("llama3.1-405b", "realtime"): (4500.0, 80.0),
    ("deepseek-r1", "online"): (2000.0, 80.0),
}
"""p99 to the first token and per token after it, by the model and class of a record. Source: MLPerf Inference rules, v5.1 (2025-09-09): the
interactive limits of Llama-2-70B from a public summary of the results, the others general knowledge, to be checked again."""


def keeps(record: Performance, slo: Slo) -> bool:
    """Tell whether a run kept at least what an SLO promises of first token and time per token."""
    if record.kind == "own":
        kept: tuple[float | None, float | None] = (record.ttft_p95_ms, record.tpot_p95_ms)
    else:
        kept = LIMITS_MS.get((record.model, record.klass), (None, None))
    promised = (slo.ttft_ms, slo.tpot_ms)
    return all(p is None or (k is not None and k <= p) for p, k in zip(promised, kept, strict=True))


def is_shown(w: Workload, runs: Iterable[Performance]) -> bool:
    """Tell whether any of an accelerator's runs shows that it can keep a workload's SLO: the user's of its model, or a shared record."""
    model = plain_model(w.model.name)
    return any(keeps(r, w.slo) for r in runs if r.kind != "own" or plain_model(r.model) == model)


def plain_model(model: str) -> str:
    """Return a model's name without what its vendors and variants put around it."""
    name = model.lower().rsplit("/", 1)[-1]
    return name.replace("llama-", "llama").replace("meta-", "").replace("-chat", "").replace("-instruct", "").replace("-hf", "")
