"""`fleetctl assess`, shell layer: options, use case, view. Reads only; `--save`, `--convert` and `--import-names` write what they name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import output_option, pass_app
from fleetctl.errors import EXIT_CHANGES, EXIT_DONE

if TYPE_CHECKING:
    from fleetctl.domain.plan import Assessment, Waiver
    from fleetctl.usecases.assess import AssessPorts, Subject


SHORTEST_REASON = 3
"""Characters of a waiver's reason."""


@click.command("assess")
@click.argument("subjects", nargs=-1, metavar="[WORKLOAD|PATH|IMAGE]...")
@click.option("--target", default="gfx942", metavar="ARCH", help="Accelerator to move to.  [default: gfx942, MI300X]")
@click.option("--save", "workload", metavar="WORKLOAD", help="Keep the verdict as this workload's; plans take it from then on.")
@click.option("--waive", "waived", multiple=True, metavar="RULE=REASON", help="Accept a finding, with a reason that is kept. Repeatable.")
@click.option("--accept-licence", metavar="scale=REFERENCE", help="Put on record that you hold this licence.")
@click.option("--probe", is_flag=True, help="Also try real compilers for the target, sandboxed, where they are installed.")
@click.option("--convert", type=click.Path(file_okay=False, path_type=Path), help="Write the translated tree into this new folder.")
@click.option(
    "--import-names", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Refresh CUDA names from a HIPIFY checkout."
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the result to this file instead of stdout.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 where the route is stay, or something blocks or was not judged.")
@output_option("table", "wide", "json", "yaml", "name", "html", "sarif")
@pass_app
def command(
    app: App,
    subjects: tuple[str, ...],
    target: str,
    workload: str | None,
    waived: tuple[str, ...],
    accept_licence: str | None,
    probe: bool,
    convert: Path | None,
    import_names: Path | None,
    out: Path | None,
    detailed_exitcode: bool,
    output: str,
) -> None:
    """Judge how a workload, a source tree, a model folder or an image can move to AMD.

    Nothing of what is read is run, and nothing outside is changed. Without a subject: the whole fleet, by route and by money.

    \b
    Examples:
      fleetctl assess                                   the fleet's verdicts
      fleetctl assess ./service --save chat             read a tree, for plans
      fleetctl assess chat --waive R038="own kernels"   accept a finding
      fleetctl assess image.tar -o sarif --out a.sarif  what docker saved
    """
    _check_target(target)
    if import_names is not None:
        _import_names(app, import_names)
        if not subjects:
            return
    ports = app.wiring.assess_ports(probe=probe, keep=bool(workload or accept_licence) or _has_store(app))
    if accept_licence is not None:
        _accept(app, accept_licence, ports)
    if not subjects and workload is None:
        if accept_licence is None:
            _show_fleet(app, output, out)
        return
    from fleetctl.usecases.assess import assess, save

    subject = _subject(app, subjects, workload, target)
    found = assess(subject, ports, waivers=tuple(_waiver(text, ports) for text in waived))
    if workload is not None or (waived and found.workload and ports.records is not None):
        save(found, ports)
    if convert is not None:
        _convert(app, subject, convert, found, ports)
    if probe:
        _say_missing(app, ports)
    _show(app, found, output, out)
    _say_unused(app, found)
    if workload is not None:
        app.note(f"Kept as the assessment of {workload}. Next: fleetctl plan")
    from fleetctl.assess.route import not_judged

    is_clean = not found.blocking and found.route != "stay" and not not_judged(found)
    sys.exit(EXIT_DONE if is_clean or not detailed_exitcode else EXIT_CHANGES)


def _check_target(target: str) -> None:
    from fleetctl.domain.portability import TARGETS
    from fleetctl.errors import UsageError

    if target not in TARGETS:
        known = ", ".join(TARGETS)
        raise UsageError("usage.target", f"{target[:40]!r} is none of AMD's architectures: {known}.", hint="Add: --target gfx942 (MI300X)")


def _has_store(app: App) -> bool:
    return app.settings.store.exists()


def _subject(app: App, subjects: tuple[str, ...], save_as: str | None, target: str) -> Subject:
    """Sort what was named: a path that is there, a workload of the fleet, or an image's name."""
    from fleetctl.domain.ids import WorkloadId
    from fleetctl.errors import UsageError
    from fleetctl.formats.fleet_checks import did_you_mean
    from fleetctl.usecases.assess import Subject

    paths: list[Path] = []
    images: list[str] = []
    named = save_as
    for word in subjects:
        if not word.strip():
            raise UsageError("usage.no_path", "a name is empty.", hint="Name a file, a folder, an image or a workload")
        if Path(word).exists():
            paths.append(Path(word))
        elif "/" in word or ":" in word:
            if word.startswith(("/", ".", "~")) or (":" not in word and Path(word).parent.is_dir()):
                raise UsageError("usage.no_path", f"there is nothing at {word!r}.", hint="Name a file, a folder, an image or a workload")
            images.append(word)
        elif named is None or named == word:
            named = word
        else:
            raise UsageError("usage.two_workloads", f"{named!r} and {word!r}: one workload at a time.", hint="Run: fleetctl assess --help")
    workload = None
    if named is not None:
        fleet = app.wiring.fleet
        workload = next((w for w in fleet.workloads if w.id == WorkloadId(named)), None)
        if workload is None:
            near = did_you_mean(named, (w.id for w in fleet.workloads))
            hint = "Name a path, an image or a workload of the fleet file"
            raise UsageError("usage.no_workload", f"there is no path and no workload {named!r}{near}.", hint=hint)
    return Subject(paths=tuple(paths), images=tuple(images), workload=workload, target=target)


def _waiver(text: str, ports: AssessPorts) -> Waiver:
    from fleetctl.domain.plan import Waiver
    from fleetctl.errors import UsageError

    rule, sign, reason = text.partition("=")
    if not rule.strip() or not sign:
        raise UsageError("usage.waiver", f"{text!r} is not RULE=REASON.", hint='Add: --waive R038="why it is fine"')
    if len(reason.strip()) < SHORTEST_REASON:
        raise UsageError(
            "usage.waiver_reason",
            f"the reason {reason.strip()!r} for {rule.strip()} is too short to be kept: {SHORTEST_REASON} characters at least.",
            hint=f'Add: --waive {rule.strip()}="why it is fine"',
        )
    if rule.split(":")[0] == "R068":
        raise UsageError("usage.licence_waiver", "a licence is accepted, not waived.", hint="Add: --accept-licence scale=REFERENCE")
    return Waiver(rule=rule.strip(), reason=reason.strip(), actor=ports.actor, at=ports.clock.now())


def _say_unused(app: App, found: Assessment) -> None:
    from fleetctl.assess.route import unused

    for waiver in unused(found):
        app.note(f"Waiver {waiver.rule} answers to no finding of this assessment: it changes nothing. Labels: -o name")


def _accept(app: App, text: str, ports: AssessPorts) -> None:
    from fleetctl.errors import UsageError
    from fleetctl.usecases.assess import accept_licence

    name, _, reference = text.partition("=")
    if name.strip() != "scale" or not reference.strip():
        raise UsageError("usage.licence", f"{text!r} is not scale=REFERENCE.", hint="Add: --accept-licence scale=CONTRACT-NUMBER")
    accept_licence("scale", reference.strip(), ports)
    app.note(f"On record: licence scale, {reference.strip()}.")


def _convert(app: App, subject: Subject, folder: Path, found: Assessment, ports: AssessPorts) -> None:
    from fleetctl.errors import UsageError
    from fleetctl.usecases.convert import BY_HAND_NAME, PATCH_NAME, convert_tree
    from fleetctl.views.columns import counted

    if len(subject.paths) != 1:
        raise UsageError("usage.convert", "--convert needs exactly one path.", hint="Run: fleetctl assess PATH --convert NEWFOLDER")
    if folder.resolve().is_relative_to(subject.paths[0].resolve()):
        raise UsageError("usage.convert", f"{folder} lies in the tree that is read.", hint="Name a new folder beside it")
    done = convert_tree(subject.paths[0], folder, found, ports.tree, ports.book, app.wiring.copy_writer())
    left = f"; {counted(len(done.left_out), 'source')} left out" if done.left_out else ""
    app.note(
        f"{folder}: {counted(done.files, 'source')}, {done.changed} of them changed ({counted(done.replaced, 'name')}), "
        f"and as {PATCH_NAME}; {counted(len(done.by_hand), 'name')} without a HIP twin{left}: see {BY_HAND_NAME}."
    )


def _import_names(app: App, checkout: Path) -> None:
    made = app.wiring.import_names(checkout)
    app.note(f"{made.rows} names from {made.tables} tables, {made.new} new; kept in {app.shown(made.path)}.")


def _say_missing(app: App, ports: AssessPorts) -> None:
    for probe in ports.probes:
        missing = probe.missing()
        if missing:
            app.note(f"Not probed with {probe.name}: {missing}")


def _show_fleet(app: App, output: str, out: Path | None) -> None:
    from fleetctl import __version__
    from fleetctl.domain.plan import Assessment
    from fleetctl.usecases.assess import assess_fleet, kept_id
    from fleetctl.views.assess import assessment_sarif, fleet_table
    from fleetctl.views.assess_page import assessment_html
    from fleetctl.views.output import render

    w = app.wiring
    verdict = assess_fleet(w.fleet, w.store, w.clock, w.price())
    if output in {"html", "sarif"}:
        found = (w.store.get(Assessment, kept_id(r.workload)) for r in verdict.rows)
        kept = tuple(a for a in found if a is not None)
        _write(app, assessment_html(kept, verdict, __version__) if output == "html" else assessment_sarif(kept, __version__), out)
        return
    names = tuple(f"{r.workload}/{r.route}" for r in verdict.rows)
    _write(app, render(output, kind="fleet-assessment", value=verdict, table=fleet_table(verdict), names=names, width=app.width), out)


def _show(app: App, found: Assessment, output: str, out: Path | None) -> None:
    from fleetctl import __version__
    from fleetctl.views.assess import assessment_names, assessment_sarif, assessment_table
    from fleetctl.views.assess_page import assessment_html
    from fleetctl.views.output import render

    if output == "html":
        text = assessment_html((found,), None, __version__)
    elif output == "sarif":
        text = assessment_sarif((found,), __version__)
    else:
        table = assessment_table(found, all_=output == "wide")
        text = render(output, kind="assessment", value=found, table=table, names=assessment_names(found), width=app.width)
    _write(app, text, out)


def _write(app: App, text: str, out: Path | None) -> None:
    from fleetctl.errors import UsageError

    if out is None:
        app.out(text.rstrip("\n"))
        return
    try:
        out.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as e:
        raise UsageError("usage.file", f"{out} cannot be written: {e.strerror}.", hint="Add: --out FILE, where you may write") from None
    app.note(f"{out} written.")
