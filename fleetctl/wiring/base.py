"""Composition root, what all of it rests on: store, clock, actor, fleet. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.store.sqlite import SqliteStore
    from fleetctl.adapters.store.status import StatusRow
    from fleetctl.domain.fleet import Fleet
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.people import Actor
    from fleetctl.ports.capacity import CapacitySource
    from fleetctl.ports.state import Clock
    from fleetctl.ports.traffic import EvidenceSource, IdentitySource, Router, Shadow
    from fleetctl.usecases.proof import Proof

STATE = ".fleetctl"
STACKS = ("lab", "azure", "aws")


def shipped(name: str) -> Path:
    """Return the folder `playbooks` or `terraform`: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_shipped" / name
    return inside if inside.is_dir() else package.parent / name


class Base:
    """Adapters of one workspace, made when asked for and kept.

    Args:
        workspace: the user's folder; fleet_file: finds the fleet file, or raises ConfigInvalid.
        store: path of the store; actor: who acts.
    """

    def __init__(
        self,
        workspace: Path,
        fleet_file: Callable[[], Path],
        *,
        store: Path,
        actor: str,
        price_book: str = "list",
        signing_key: Path | None = None,
    ) -> None:
        self.workspace = workspace
        self._fleet_file = fleet_file
        self._store = store
        self._actor = actor
        self._price_book = price_book
        self._signing_key = signing_key
        self._routers: dict[str, Router] = {}
        self._shadows: dict[CellId, Shadow] = {}
        self._evidence: dict[str, EvidenceSource] = {}
        self._identity: IdentitySource | None = None
        self._sources: dict[str, CapacitySource | None] = {}

    @property
    def state_folder(self) -> Path:
        """Return the workspace's private folder, made with mode 0700."""
        folder = self.workspace / STATE
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @cached_property
    def store(self) -> SqliteStore:
        """Return the store of record, made where nothing was ever planned. Raises StoreUnavailable, ConfigInvalid."""
        from fleetctl.adapters.store.sqlite import SqliteStore

        self._require_store()
        if not self._store.exists():
            self._fleet_file()  # no store is begun where there is no fleet
        try:
            self._store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            from fleetctl.errors import StoreUnavailable

            raise StoreUnavailable(
                "store.unreachable", f"{self._store.parent} cannot be made: {e.strerror}.", hint="Run: fleetctl doctor"
            ) from e
        return SqliteStore(self._store)

    def _require_store(self) -> None:
        """Refuse to begin an empty store where plans were made: it would hide the loss, and rollouts that still have customers.

        Raises:
            StoreUnavailable: store.gone.
        """
        if self._store.exists() or not any((self.workspace / STATE / "home").glob("*.json")):
            return
        from fleetctl.errors import StoreUnavailable

        raise StoreUnavailable(
            "store.gone",
            f"the store {self._store} is not there, though plans were made here.",
            hint=f"Put it back; or begin anew once all is home: fleetctl fallback --all, then rm -r {STATE}/home",
        )

    @cached_property
    def clock(self) -> Clock:
        """Return the system's clock."""
        from fleetctl.adapters.clock.system import SystemClock

        return SystemClock()

    @cached_property
    def actor(self) -> Actor:
        """Return the person at this terminal."""
        from fleetctl.domain.people import Actor

        return Actor(kind="person", name=self._actor, via="cli")

    @cached_property
    def proof(self) -> Proof:
        """Return what signs and checks approvals: SSH keys, and the allowed signers beside the fleet file."""
        from fleetctl.adapters.signing import SshSignatures
        from fleetctl.usecases.proof import Proof

        key = self._signing_key or Path(os.path.expanduser("~/.ssh/id_ed25519"))
        return Proof(signatures=SshSignatures(self._fleet_file().parent, key), clock=self.clock)

    @property
    def holder(self) -> str:
        """Return the name under which this process takes leases."""
        from fleetctl.ports.state import holder_name

        return holder_name(self.actor, os.getpid(), socket.gethostname())

    @cached_property
    def fleet(self) -> Fleet:
        """Read the fleet file and give it its serial: one more whenever its content differs from the last one recorded.

        Raises:
            ConfigInvalid: config.*, with every mistake of the file.
        """
        from fleetctl.domain.canonical import digest
        from fleetctl.domain.fleet import Fleet
        from fleetctl.formats.fleet_file import read_fleet

        shown = self._fleet_file()
        name = str(shown.relative_to(self.workspace)) if shown.is_relative_to(self.workspace) else str(shown)
        read = read_fleet(shown, serial=1, shown_as=name)
        last = self.store.newest(Fleet)
        if last is not None and last.lineage == read.lineage:
            same = replace(read, serial=last.serial)
            if digest(same) == digest(last):
                return last
            read = replace(read, serial=last.serial + 1)
        self.store.put(f"{read.lineage}-{read.serial}", read)
        return read

    def read_again(self) -> Fleet:
        """Return the fleet as its file is now, for a command that has run for long. Raises as `fleet`."""
        vars(self).pop("fleet", None)
        return self.fleet

    def run_folder(self, name: str) -> Path:
        """Make and return a new private run folder."""
        folder = self.state_folder / "runs" / f"{self.clock.now():%Y%m%dT%H%M%S}-{name}-{os.getpid()}"
        folder.mkdir(mode=0o700, parents=True)
        return folder

    def status_rows(self) -> tuple[StatusRow, ...]:
        """Return one light row per cell that moves or moved; () where there is no store yet. Raises StoreUnavailable (store.gone)."""
        self._require_store()
        from fleetctl.adapters.store.status import status_rows

        return status_rows(self._store) if self._store.exists() else ()

    def held_pools(self) -> dict[str, str]:
        """Return by cell the pool whose minimum is held for it. Raises StoreUnavailable (store.gone)."""
        self._require_store()
        from fleetctl.adapters.store.status import held_pools

        return held_pools(self._store) if self._store.exists() else {}
