"""Init, shell layer: options, use case, view. Never overwrites a file."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleetctl.cli.app import App
from fleetctl.cli.options import dry_run_option, output_option, pass_app

if TYPE_CHECKING:
    from fleetctl.usecases.init import NewFile, Written


@click.command("init")
@click.argument("name", default="example")
@dry_run_option
@output_option("table", "json", "yaml", "name")
@pass_app
def command(app: App, name: str, dry_run: bool, output: str) -> None:
    """Write a commented example fleet NAME, settings, and read-only cloud policies into the workspace.

    Nothing is overwritten. inventory/NAME/access holds the exact rights that fleetctl reads with: hand them to security.
    """
    from fleetctl.adapters.workspace import WorkspaceFolder
    from fleetctl.domain.ids import is_id
    from fleetctl.errors import UsageError
    from fleetctl.usecases.init import init_workspace

    if not is_id(name):
        raise UsageError("usage.name", f"{name!r} is not a name: use 1 to 63 of a-z, 0-9 and inner '-'.", hint="Run: fleetctl init example")
    done = init_workspace(files(name), WorkspaceFolder(app.workspace), dry_run=dry_run)
    _show(app, name, done, output)


def files(name: str) -> Iterator[NewFile]:
    """Yield what init writes for a fleet of that name."""
    from fleetctl.adapters.workspace import new_key
    from fleetctl.formats import example
    from fleetctl.usecases.init import NewFile

    folder = f"inventory/{name}"
    lineage = str(uuid.uuid4())
    yield NewFile(
        path=f"{folder}/fleet.yaml", what="an example fleet: replace it with yours", make=lambda: example.fleet_text(name, lineage).encode()
    )
    yield NewFile(path=f"{folder}/fleet.schema.json", what="its JSON Schema, for editors", make=lambda: example.schema_text().encode())
    yield NewFile(
        path=f"{folder}/access/azure-role.json", what="read-only Azure role, for security", make=lambda: example.azure_role_text().encode()
    )
    yield NewFile(
        path=f"{folder}/access/aws-policy.json", what="read-only AWS policy, for security", make=lambda: example.aws_policy_text().encode()
    )
    yield NewFile(
        path=f"{folder}/access/kubernetes-role.yaml",
        what="read-only Kubernetes role, for security",
        make=lambda: example.kubernetes_role_text().encode(),
    )
    yield NewFile(path="fleetctl.toml", what="settings of this workspace", make=lambda: example.settings_text(name).encode())
    yield NewFile(path=".fleetctl/key", what="key that signs the way home (0600)", make=new_key, secret=True)
    yield NewFile(path=".fleetctl/.gitignore", what="keeps that folder out of git", make=lambda: b"*\n", secret=True)


def _show(app: App, name: str, done: tuple[Written, ...], output: str) -> None:
    from fleetctl.views.output import Column, Table

    rows = tuple((w.path, w.state, w.what) for w in done)
    foot = ("", _next(app, name, done))
    table = Table(columns=(Column(title="FILE"), Column(title="STATE"), Column(title="WHAT", shrink=1, wraps=True)), rows=rows, foot=foot)
    app.show(output, "init", done, table, tuple(w.path for w in done))


def _next(app: App, name: str, done: tuple[Written, ...]) -> str:
    if any(w.state == "planned" for w in done):
        return "Nothing was written. Next: fleetctl init without --dry-run"
    fleet = Path(app.workspace) / "inventory" / name / "fleet.yaml"
    return f"Next: edit {app.shown(fleet)}, then: fleetctl inventory"
