"""`fleetctl bench`, shell layer: drive an endpoint with your own trace and keep what it did; routes against each other. Never decides."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app
from fleetctl.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.domain.bench import Point, Promise
    from fleetctl.usecases.bench import Against, Subject

MS = click.FloatRange(min=0, min_open=True)
CLASSES = ("batch", "online", "realtime")
ROUTES = ("native", "rebuild", "hipify", "scale", "zluda")


@click.command("bench")
@click.argument("url", required=False, metavar="[URL]")
@click.option("--trace", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="CSV: at_s, input_tokens, output_tokens.")
@click.option("--model", default="", help="Name that the endpoint serves, and that the record carries.")
@click.option("--gpu", default="", help="As the catalogue names it: fleetctl catalog list gpus.")
@click.option("--sku", default="", help="VM size, as the catalogue names it.")
@click.option("--accelerators", type=click.IntRange(1), default=1, show_default=True, help="GPUs of the whole endpoint.")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="GPUs of one replica.")
@click.option("--precision", default="bf16", show_default=True, help="Of the weights.")
@click.option("--engine", default="", help='Engine and version, such as "vLLM 0.11.0, ROCm 7.0".')
@click.option("--route", type=click.Choice(ROUTES), default="native", show_default=True, help="How the code came to run there.")
@click.option("--class", "klass", type=click.Choice(CLASSES), default="online", show_default=True, help="SLO class of the record.")
@click.option("--slo-ms", type=MS, help="p95 of a whole request that still counts; left out: any.")
@click.option("--slo-ttft-ms", type=MS, help="p95 to the first token that still counts; left out: any.")
@click.option("--slo-tpot-ms", type=MS, help="p95 per token after the first that still counts; left out: any.")
@click.option("--rates", default="1", show_default=True, help="Requests per second, one run each, such as 1,2,4,8.")
@click.option("--requests", "count", type=click.IntRange(2, 1_000_000), default=200, show_default=True, help="Per rate.")
@click.option("--compare", is_flag=True, help="Only compare the kept runs of --model and --class: routes against native and NVIDIA.")
@dry_run_option
@output_option("table", "wide", "json", "yaml")
@pass_app
def command(
    app: App, /, output: str, dry_run: bool, url: str | None, trace: Path | None, count: int, compare: bool, **given: object
) -> None:
    """Drive an OpenAI-compatible endpoint with your own trace, rate by rate; keep what it did where the SLO was met.

    Plans count with your own runs before the catalogue's. FLEETCTL_BENCH_KEY holds the endpoint's key, if it needs one.

    \b
    Examples:
      fleetctl bench http://10.0.0.7:8000 --trace day.csv \\
        --model llama-3.1-70b --gpu MI300X --accelerators 8 --tp 8 \\
        --engine "vLLM 0.11.0" --precision fp8 --rates 1,2,4,8 --slo-ms 4000
      fleetctl bench --compare --model llama-3.1-70b
    """
    from fleetctl.errors import UsageError

    if compare and not given["model"]:
        raise UsageError("bench.missing", "a comparison needs --model.", hint="Run: fleetctl catalog list performance own")
    if compare:
        _compare(app, str(given["model"]), str(given["klass"]), output)
        return
    missing = [n for n, v in (("URL", url), ("--trace", trace), *((f"--{k}", given[k]) for k in ("model", "gpu", "engine"))) if not v]
    if missing:
        raise UsageError("bench.missing", f"a run needs {', '.join(missing)}.", hint="Run: fleetctl bench --help")
    subject = _subject(app, given)
    rates = _rates(str(given["rates"]))
    if dry_run:
        app.out(f"Would send {count} requests at {', '.join(f'{r:g}' for r in rates)} a second to {url}\nNothing was changed.")
        return
    points = _run(app, str(url), trace or Path(), subject.model, rates, count, _promise(given))
    kept = _keep(app, points, subject, trace or Path())
    _show(app, points, kept, output)
    sys.exit(EXIT_DONE if kept else EXIT_FAILED)


def _subject(app: App, given: dict[str, object]) -> Subject:
    from fleetctl.errors import UsageError
    from fleetctl.usecases.bench import Subject

    catalog = app.wiring.catalog_of("list")
    gpu, sku = str(given["gpu"]), str(given["sku"])
    if catalog.gpu(gpu) is None:
        raise UsageError("bench.gpu", f"the catalogue has no GPU {gpu!r}.", hint="Run: fleetctl catalog list gpus")
    if sku and catalog.sku(sku) is None:
        raise UsageError("bench.sku", f"the catalogue has no SKU {sku!r}.", hint="Run: fleetctl catalog list skus")
    accelerators, tp = int(str(given["accelerators"])), int(str(given["tp"]))
    found = catalog.sku(sku) if sku else None
    if found is not None and (found.gpu != gpu):
        raise UsageError("bench.sku", f"{sku} has {found.gpu}, not {gpu}.", hint="Run: fleetctl catalog show " + sku)
    if accelerators % tp:
        raise UsageError("bench.tp", f"{accelerators} GPUs are no whole number of replicas of {tp}.", hint="Mend --accelerators or --tp")
    if ";" in str(given["engine"]):
        raise UsageError("bench.engine", "an engine's name has no ';': the route is told by --route.", hint="Mend --engine")
    words = {k: str(given[k]) for k in ("model", "precision", "klass", "engine", "route")}
    odd = next((k for k, v in words.items() if len(v) > 200 or not v.isprintable() or v != v.strip()), None)
    if odd:
        raise UsageError("bench.words", f"--{odd} has a control character, blanks around it, or is too long.", hint="Mend it")
    return Subject(gpu=gpu, sku=sku, accelerators=accelerators, tp=tp, **words)


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = ()
    if not rates or any(not 0 < r <= 100_000 for r in rates):
        raise click.BadParameter("rates are numbers above 0, such as 1,2,4", param_hint="--rates")
    return rates


def _promise(given: dict[str, object]) -> Promise:
    from math import isfinite

    from fleetctl.domain.bench import Promise

    found: dict[str, float | None] = {}
    for name in ("slo_ms", "slo_ttft_ms", "slo_tpot_ms"):
        value = given[name]
        if isinstance(value, float) and not isfinite(value):
            raise click.BadParameter("must be a number of milliseconds", param_hint=f"--{name.replace('_', '-')}")
        found[name] = value if isinstance(value, float) else None
    return Promise(whole_ms=found["slo_ms"], ttft_ms=found["slo_ttft_ms"], tpot_ms=found["slo_tpot_ms"])


def _run(app: App, url: str, trace: Path, model: str, rates: Sequence[float], count: int, promise: Promise) -> tuple[Point, ...]:
    from fleetctl.domain.bench import at_rate, point_of
    from fleetctl.errors import FleetctlError
    from fleetctl.formats.trace_file import read_trace

    asked = read_trace(trace)
    endpoint = app.wiring.endpoint(url, model)
    points = []
    (first,) = endpoint.drive(at_rate(asked, 1.0, 1))
    if first.error:
        why = {"connect": "nobody answers there", "timeout": "it did not answer in time", "malformed": "its answer is no completion"}
        text = why.get(first.error, f"it answered {first.error.removeprefix('status_')} to a completion of {model[:80]}")
        raise FleetctlError(
            "bench.no_answer", f"{url[:200]}: {text}; nothing was measured.", hint="Mend URL or --model, or start the engine"
        )
    for rate in rates:
        app.note(f"{count} requests at {rate:g} a second ...")
        points.append(point_of(endpoint.drive(at_rate(asked, rate, count)), promise))
    return tuple(points)


def _keep(app: App, points: Sequence[Point], subject: Subject, trace: Path) -> int:
    from fleetctl.catalog.table import numbered
    from fleetctl.usecases.bench import rows_of
    from fleetctl.usecases.catalog import import_runs

    w = app.wiring
    source = f"fleetctl bench, trace {trace.name}"
    rows = rows_of(points, subject, source, w.clock.now().date().isoformat())
    if rows:
        import_runs(numbered(rows), w.catalog_of("list"), w.own_rows, source=source, as_of="")
    return len(rows)


def _show(app: App, points: Sequence[Point], kept: int, output: str) -> None:
    from fleetctl.views.bench import points_table

    app.show(output, "bench", list(points), points_table(points), ())
    if output in ("table", "wide"):
        app.note(
            f"{kept} of {len(points)} kept: plans count with them first. Next: fleetctl plan"
            if kept
            else "Nothing was kept: the SLO was missed."
        )


def _compare(app: App, model: str, klass: str, output: str) -> None:
    from fleetctl.catalog.books import own_performance
    from fleetctl.errors import UsageError
    from fleetctl.usecases.bench import compare
    from fleetctl.views.bench import routes_table

    found: tuple[Against, ...] = compare(own_performance(app.wiring.own_folder), app.wiring.catalog, model, klass)
    if not found:
        raise UsageError(
            "bench.no_runs", f"there is no kept run of {model!r} in class {klass}.", hint="Run: fleetctl bench URL --model ..."
        )
    app.show(output, "bench.compare", list(found), routes_table(found), ())
