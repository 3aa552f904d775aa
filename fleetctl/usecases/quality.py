"""Evidence, use-case layer: force the same texts on reference and canary and judge what they would say next. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fleetctl.analysis.quality import quality_report
from fleetctl.domain.quality import QualityReport, QualitySpec, Triple
from fleetctl.ports.state import Clock
from fleetctl.ports.traffic import Forced


def triples(number: int, text: str, reference: Forced, canary: Forced, positions: int) -> Iterator[Triple]:
    """Yield the positions of a text's continuation by the reference, asked twice of the reference and once of the canary.

    Args:
        number: of the text; positions: most of its continuation, from 1.
    """
    ids = reference.tokens(text)
    after = reference.goes_on(ids, positions)
    rows = zip(reference.choices(ids, after), reference.choices(ids, after), canary.choices(ids, after), strict=True)
    for i, (one, again, other) in enumerate(rows):
        yield Triple(prompt=str(number), prompt_len=len(ids) + i, forced=str(after[i]), reference=one, repeat=again, canary=other)


def judge_quality(
    texts: Sequence[str],
    reference: Forced,
    canary: Forced,
    spec: QualitySpec,
    clock: Clock,
    *,
    model: str,
    positions: int = 24,
    say: Callable[[int], None] = lambda _: None,
) -> QualityReport:
    """Compare text by text until the quality is shown or refuted, or the texts are used up.

    Args:
        say: told of the number of positions compared so far.
    """
    found: list[Triple] = []
    report = quality_report(found, spec, clock.now(), model)
    for number, text in enumerate(texts):
        found += triples(number, text, reference, canary, positions)
        say(len(found))
        report = quality_report(found, spec, clock.now(), model)
        if report.kind in ("PASS", "FAIL"):
            break
    return report
