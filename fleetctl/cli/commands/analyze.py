"""Analyze, shell layer: a recording, settings, use case, view. Never moves a weight."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_INCONCLUSIVE, EXIT_ROLLED_BACK

if TYPE_CHECKING:
    from fleetctl.domain.evidence import Arm
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.records import Record
    from fleetctl.domain.units import Instant
    from fleetctl.domain.workload import GuardrailSpec
    from fleetctl.usecases.analyze import AnalyzeSettings

EXITS = {"PASS": EXIT_DONE, "FAIL": EXIT_ROLLED_BACK}


@click.command("analyze")
@click.argument("recording", type=click.Path(exists=True, path_type=Path))
@click.option("--cell", default="", help="Which cell, where the recording tells of several.")
@click.option(
    "-g",
    "--guardrail",
    "guardrails",
    multiple=True,
    metavar="NAME=MARGIN[/FAIL]",
    help='Such as errors=0.5points or latency="10%/5%". Left out: errors, and the times that are recorded, with default margins.',
)
@click.option("--every", default="10s", show_default=True, help="Time between looks.")
@click.option("--warm-up", default="0s", show_default=True, help="Left out after the canary's first request.")
@click.option("--since", default="", help="Where evidence begins, such as 2026-11-30T12:00:00Z.")
@click.option("--until", default="", help="The last look.")
@click.option(
    "--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.01, show_default=True, help="Chance of a false FAIL."
)
@click.option(
    "--beta", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.05, show_default=True, help="Chance of a false PASS."
)
@click.option("--steps", type=click.IntRange(1, 20), default=1, show_default=True, help="Steps that share the FAIL capital.")
@click.option("--slo", default="", help="Promised latency, for slo_misses.")
@click.option("--streaming", is_flag=True, help="Answers are streams: no whole answer's time, errors settle late, as in a rollout.")
@click.option("--sticky", is_flag=True, help="The cell has an affinity key: what one client does alone is no FAIL.")
@click.option("--cohort", default="", metavar="A:B", help="An A/B test: cohort A of the log as baseline, B as canary.")
@click.option("--arm", type=click.Choice(["baseline", "canary"]), default=None, help="With --cohort: only requests that this arm served.")
@click.option("--model", default="", help="Only requests of this adapter model.")
@click.option("--all-looks", is_flag=True, help="Every look, not only where a verdict changed.")
@output_option()
@pass_app
def command(
    app: App,
    /,
    recording: Path,
    cell: str,
    guardrails: tuple[str, ...],
    cohort: str,
    arm: Arm | None,
    model: str,
    all_looks: bool,
    output: str,
    **given: str | float | bool,
) -> int:
    """Judge recorded evidence again, with any settings, look by look.

    RECORDING is a router's log (a file or its folder) or JSON lines of attempts and scrapes. Ends with 0 for PASS, 5 for FAIL, else 6.
    Nothing is moved and nothing is stored.

    \b
    Examples:
      fleetctl analyze /var/log/haproxy/fleetctl \\
        --cell assistant-eastus2 -g latency=10%/5%
      fleetctl analyze /var/log/haproxy/fleetctl \\
        --cell assistant-eastus2 --cohort control:new-prompt
    """
    from fleetctl.usecases.analyze import analyze, by_cohort
    from fleetctl.views.analyze import analyze_table

    found, notes = app.wiring.recorded(recording)
    chosen = _cell(found, cell)
    records = by_cohort([r for r in found if r.cell == chosen], _cohorts(cohort), model=model, arm=arm)
    settings = _settings(records, chosen, guardrails, given)
    what = "".join(f" {name} {value}" for name, value in (("cohorts", cohort), ("model", model), ("arm", arm)) if value)
    done = analyze(records, chosen, settings, query=f"{app.shown(recording)} {chosen}{what}", notes=notes)
    app.show(output, "analysis", done, analyze_table(done, every_look=all_looks or output == "wide"), (f"verdict/{done.kind}",))
    return EXITS.get(done.kind, EXIT_INCONCLUSIVE)


def _cohorts(text: str) -> tuple[str, str] | None:
    from fleetctl.errors import UsageError

    if not text:
        return None
    one, colon, other = text.partition(":")
    if not colon or not one or not other:
        raise UsageError("usage.bad", f"--cohort {text[:60]} names no two cohorts.", hint="Write it as control:variant")
    return one, other


def _cell(records: list[Record], asked: str) -> CellId:
    from fleetctl.domain.ids import CellId
    from fleetctl.errors import UsageError
    from fleetctl.usecases.analyze import cells_of

    known = cells_of(records)
    if not known:
        raise UsageError(
            "analyze.empty", "the recording holds no attempt and no scrape.", hint="Give a router's log, or JSON lines of attempts"
        )
    if asked and asked not in known:
        raise UsageError("analyze.cell", f"the recording tells nothing of {asked!r}.", hint=f"Add: --cell {'|'.join(known[:8])}")
    if not asked and len(known) > 1:
        raise UsageError("analyze.cell", f"the recording tells of {len(known)} cells.", hint=f"Add: --cell {'|'.join(known[:8])}")
    return CellId(asked or known[0])


def _settings(records: list[Record], c: CellId, guardrails: tuple[str, ...], given: dict[str, str | float | bool]) -> AnalyzeSettings:
    from fleetctl.errors import UsageError
    from fleetctl.formats.quantities import parse_duration, parse_instant
    from fleetctl.usecases.analyze import AnalyzeSettings

    def duration(name: str) -> timedelta:
        try:
            return parse_duration(str(given[name]))
        except ValueError as e:
            raise UsageError("usage.bad", f"--{name.replace('_', '-')}: {e}.", hint="Write it as 10s, 5m or 2h") from e

    def instant(name: str) -> Instant | None:
        try:
            return parse_instant(str(given[name])) if given[name] else None
        except ValueError as e:
            raise UsageError("usage.bad", f"--{name}: {e}.", hint="Write it as 2026-11-30T12:00:00Z") from e

    every = duration("every")
    if every < timedelta(milliseconds=100):
        raise UsageError("usage.bad", "--every is under 100ms.", hint="Write it as 10s")
    named = _guardrails(records, c, guardrails)
    if guardrails:
        _require_told(named, records, c, has_slo=bool(given["slo"]))
    return AnalyzeSettings(
        guardrails=named,
        look_every=every,
        warm_up=duration("warm_up"),
        since=instant("since"),
        until=instant("until"),
        alpha=float(given["alpha"]),
        beta=float(given["beta"]),
        steps=int(given["steps"]),
        slo_latency_ms=duration("slo").total_seconds() * 1_000 if given["slo"] else None,
        streaming=bool(given["streaming"]),
        sticky=bool(given["sticky"]),
    )


def _guardrails(records: list[Record], c: CellId, texts: tuple[str, ...]) -> tuple[GuardrailSpec, ...]:
    """Return the named guardrails, or errors and every recorded time with the margins that the recorded share can afford."""
    from fleetctl.domain.evidence import LADDER_METRICS
    from fleetctl.domain.records import Attempt
    from fleetctl.domain.workload import Guardrail, GuardrailSpec
    from fleetctl.errors import UsageError
    from fleetctl.formats.fleet_checks import read_margin
    from fleetctl.formats.guardrail_names import require_guardrail
    from fleetctl.formats.presets import default_fail_margin, default_guardrail

    attempts = [r for r in records if isinstance(r, Attempt) and r.cell == c]
    if not texts:
        share_bp = round(10_000 * sum(a.arm == "canary" for a in attempts) / max(1, len(attempts))) if attempts else 5_000
        told = [m for m in LADDER_METRICS if any(a.measured(m) is not None for a in attempts)]
        return tuple(default_guardrail(Guardrail(name), share_bp) for name in ("errors", *told))
    out = []
    for text in texts:
        name, _, margins = text.partition("=")
        margin_text, _, fail_text = margins.partition("/")
        try:
            require_guardrail(name)
            margin = read_margin(name, _spaced(margin_text))
            fail = read_margin(name, _spaced(fail_text)) if fail_text else default_fail_margin(Guardrail(name), margin)
        except ValueError as e:
            raise UsageError("usage.bad", f"--guardrail {text}: {e}.", hint="Write it as errors=0.5points or latency=10%/5%") from e
        if margin <= 0 or not 0 <= fail <= margin:
            raise UsageError(
                "usage.bad", f"--guardrail {text}: the margin must be above 0, and FAIL not above it.", hint="See: fleetctl help"
            )
        out.append(GuardrailSpec(name=Guardrail(name), margin=margin, fail_margin=fail))
    return tuple(out)


def _require_told(specs: tuple[GuardrailSpec, ...], records: list[Record], c: CellId, *, has_slo: bool) -> None:
    """Refuse guardrails of which the recording holds nothing: what nobody counted would look like no regression."""
    from fleetctl.errors import UsageError
    from fleetctl.usecases.analyze import untold

    for spec in specs:
        why = untold(spec.name, records, c, has_slo=has_slo)
        if why:
            raise UsageError("analyze.untold", f"--guardrail {spec.name}: {why}.", hint="Leave it out, or give another recording")


def _spaced(text: str) -> str:
    plain = text.strip()
    return plain.replace("points", " points").replace("  ", " ") if plain.endswith("points") else plain
