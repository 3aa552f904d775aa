"""Composition root, traffic and coming home. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.engines.api import Api
    from fleetctl.adapters.home.files import WayHomeFiles
    from fleetctl.adapters.routers.route import Backends
    from fleetctl.domain.evidence import Arm
    from fleetctl.domain.fleet import Connection
    from fleetctl.domain.home import WayHome
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.pool import Host
    from fleetctl.domain.records import Record
    from fleetctl.domain.workload import Cell
    from fleetctl.ports.traffic import EvidenceSource, Holds, IdentitySource, Notices, Prober, Router, Shadow, Together
    from fleetctl.usecases.budget import BudgetGate
    from fleetctl.usecases.home import HomePorts
    from fleetctl.usecases.lift import LiftPorts
    from fleetctl.usecases.tick import TickPorts, TickSettings
    from fleetctl.wiring.evidence import EvidenceMaker

from fleetctl.wiring.base import STACKS, STATE, shipped  # noqa: F401
from fleetctl.wiring.people import People


class Traffic(People):
    """Routers, evidence, shadow, probers and the ways home of one workspace."""

    def router_of(self, c: CellId) -> Router:
        """Return the router of a cell."""
        return self._router(self._connection_of(c))

    def _connection_of(self, c: CellId) -> Connection:
        """Return the router's connection of a cell.

        Raises:
            ConfigInvalid: config.cell_gone, where the fleet file has lost a cell that still moves, or its router.
        """
        try:
            return self.fleet.router(self.fleet.cell(c).router.name)
        except KeyError:
            from fleetctl.errors import ConfigInvalid

            text = f"{c} is moving, and the fleet file no longer has it or its router."
            raise ConfigInvalid("config.cell_gone", text, hint=f"Put it back; until then only this works: fleetctl fallback {c}") from None

    def _router(self, connection: Connection) -> Router:
        if connection.name not in self._routers:
            self._routers[connection.name] = self._make_router(connection, {c.id: c.source for c in self.fleet.cells})
        return self._routers[connection.name]

    def _make_router(self, connection: Connection, sources: Mapping[CellId, PoolId]) -> Router:
        from fleetctl.wiring.routers import make_router

        return make_router(connection, sources, self._backends())

    def shown_bp(self, c: CellId) -> int | None:
        """Return what a cell's router routes to its target, basis points; None where it does not answer or is gone from the fleet file."""
        from fleetctl.errors import FleetctlError

        try:
            return self.router_of(c).read(c).target_bp
        except FleetctlError:
            return None

    def _backends(self) -> dict[CellId, Backends]:
        from fleetctl.adapters.routers.route import Backends

        named = (c for c in self.fleet.cells if c.router.baseline_backend or c.router.canary_backend)
        return {
            c.id: Backends(baseline=c.router.baseline_backend or f"{c.id}_baseline", canary=c.router.canary_backend or f"{c.id}_canary")
            for c in named
        }

    def _pin_key(self, connection: Connection) -> str:
        from fleetctl.adapters.secrets.files import FileSecrets
        from fleetctl.errors import CredentialsMissing

        ref = connection.secrets.get("pin_key")
        if ref is None:
            raise CredentialsMissing("credentials.missing", f"router {connection.name} names no pin_key.", hint="Add it to the fleet file")
        return FileSecrets().resolve(ref)

    def prober_of(self, c: CellId) -> Prober:
        """Return what proves a cell's replicas by real completions."""
        from fleetctl.wiring.routers import make_prober

        connection = self._connection_of(c)
        return make_prober(
            connection,
            self._backends(),
            pin_key=lambda: self._pin_key(connection),
            sources={x.id: x.source for x in self.fleet.cells},
            models={x.id: self.fleet.workload(x.workload).model.name for x in self.fleet.cells},
            endpoints=self._endpoints,
        )

    def _endpoints(self, c: CellId, arm: Arm) -> tuple[str, ...]:
        router = self.fleet.cell(c).router
        return router.baseline_endpoints if arm == "baseline" else router.canary_endpoints

    def evidence_of(self, c: CellId) -> EvidenceSource:
        """Return the evidence source of a cell: what the fleet file names for it."""
        return self._log_of(c) if self._has_log_alone(c) else self._evidence_maker.of(c)

    def check_evidence(self, cells: Iterable[CellId]) -> None:
        """Refuse cells whose evidence could not be had. Raises ConfigInvalid (config.prompts, config.replay, config.evidence)."""
        for c in cells:
            if not self._has_log_alone(c):
                self._evidence_maker.check(c)

    def _has_log_alone(self, c: CellId) -> bool:
        try:
            return self.fleet.cell(c).evidence == ("log",)
        except KeyError:
            return True

    @cached_property
    def _evidence_maker(self) -> EvidenceMaker:
        from fleetctl.adapters.routers.route import PIN_HEADER
        from fleetctl.wiring.evidence import EvidenceMaker

        def pin_headers(c: CellId, arm: Arm) -> dict[str, str]:
            return {PIN_HEADER: f"{self._pin_key(self._connection_of(c))}:{arm}"}

        return EvidenceMaker(
            lambda: self.fleet,
            self._log_of,
            pin_headers,
            workspace=self.workspace,
            folder=lambda: self.state_folder / "evidence",
            now=self.clock.now,
        )

    def _log_of(self, c: CellId) -> EvidenceSource:
        """Return the source over the log of a cell's router; one per router, so that a log is read once."""
        from fleetctl.adapters.routers.evidence import RouterLogEvidence
        from fleetctl.wiring.routers import needed_setting

        connection = self._connection_of(c)
        if connection.name not in self._evidence:
            workloads = {x.id: self.fleet.workload(x.workload) for x in self.fleet.cells if x.router.name == connection.name}
            self._evidence[connection.name] = RouterLogEvidence(
                Path(needed_setting(connection, "log_folder", "log that could be evidence")),
                now=self.clock.now,
                streaming=frozenset(c for c, w in workloads.items() if w.traffic.streaming),
                slo_latency_ms={c: w.slo.latency_ms for c, w in workloads.items() if w.slo.latency_ms is not None},
                cells=tuple(workloads),
                sticky=frozenset(x.id for x in self.fleet.cells if x.affinity is not None),
            )
        return self._evidence[connection.name]

    def identity_of(self, c: CellId) -> IdentitySource:
        """Return what tells what both arms of a cell serve; asked through its router, pinned to the arm."""
        from fleetctl.adapters.engines.arms import EngineArms
        from fleetctl.domain.identity import ContractReport

        if self._identity is None:
            self._identity = EngineArms(
                self.arm_api,
                self.clock.now,
                report=lambda cell: self.store.get(ContractReport, cell),
                declared=lambda cell: self.fleet.workload(self.fleet.cell(cell).workload).may_differ,
            )
        return self._identity

    def arm_api(self, c: CellId, arm: Arm) -> Api:
        """Return the API of one arm of a cell, through its router. Raises ConfigInvalid, CredentialsMissing."""
        from fleetctl.adapters.engines.api import Api
        from fleetctl.adapters.routers.route import PIN_HEADER
        from fleetctl.errors import ConfigInvalid
        from fleetctl.wiring.routers import PINNING

        connection = self._connection_of(c)
        if connection.kind not in PINNING:
            places = self._endpoints(c, arm)
            if not places:
                text = f"cell {c} names no endpoint of its {arm}, and router {connection.name} lets nobody choose a side."
                raise ConfigInvalid("config.router", text, hint="Add it to the fleet file.")
            return Api(f"http://{places[0]}")
        url = f"{connection.settings.get('url', '').rstrip('/')}/{c}"
        return Api(url, headers={PIN_HEADER: f"{self._pin_key(connection)}:{arm}"})

    def recorded(self, place: Path) -> tuple[list[Record], tuple[str, ...]]:
        """Return the records of a router's log or of JSON lines, and what was wrong with lines.

        Raises:
            EvidenceUnavailable: evidence.down.
        """
        from fleetctl.wiring.evidence import read_recording

        return read_recording(place)

    def shadow_of(self, c: CellId) -> Shadow:
        """Return the shadow of a cell; one per cell, so that what was compared is read once."""
        from fleetctl.adapters.shadow.files import ShadowFiles
        from fleetctl.wiring.routers import needed_setting, set_shadow_rate

        def set_rate(cell: CellId, milli_per_s: int) -> None:
            workload = self.fleet.workload(self.fleet.cell(cell).workload)
            share = workload.shadow.max_share if workload.shadow is not None else 0.0
            set_shadow_rate(self.router_of(cell), cell, milli_per_s / 1000, workload.traffic.requests_per_s, share)

        folder = Path(needed_setting(self._connection_of(c), "shadow_folder", "shadow"))
        if c not in self._shadows:
            self._shadows[c] = ShadowFiles(folder, set_rate=set_rate, forbids=self._forbids_copies)
        return self._shadows[c]

    def _forbids_copies(self, c: CellId) -> str:
        """Return why no copy of a cell's requests may go to its target, "" where they may: its data may be served in some regions only."""
        cell, rollout = self.fleet.cell(c), self.store.load(c)
        if rollout is None:
            return "it has no rollout, so nobody knows where copies would go"
        allowed = dict.fromkeys((cell.region, *cell.regions))
        target = next((p for p in self.fleet.pools if p.id == rollout.spec.target), None)
        if target is None:
            return f"the region of its target {rollout.spec.target} is not known"
        if target.region not in allowed:
            return f"its data may be served from {' or '.join(allowed)} only, its target is in {target.region}"
        return ""

    def tick_ports(self) -> TickPorts:
        """Return all that a tick touches."""
        from fleetctl.usecases.tick import TickPorts

        return TickPorts(
            store=self.store,
            clock=self.clock,
            notifier=self.notifier,
            holds=self.holds,
            router=self.router_of,
            evidence=self.evidence_of,
            shadow=self.shadow_of,
            prober=self.prober_of,
            identity=self.identity_of,
            notices=self.notices,
            timed=self._timed,
        )

    def _timed(self, c: CellId, took_ms: float) -> None:
        """Keep what a router took to bring a cell home; nothing waits for it."""
        from contextlib import suppress

        from fleetctl.errors import FleetctlError
        from fleetctl.usecases.home_time import note_home_time

        with suppress(FleetctlError):
            note_home_time(self.store, self._connection_of(c).name, took_ms, self.clock.now())

    @cached_property
    def budget(self) -> BudgetGate | None:
        """Return what is asked of the SLO budget before a cell starts; None where the fleet file names nothing. Raises ConfigInvalid."""
        from fleetctl.wiring.budget import budget_gate

        return budget_gate(self.fleet)

    @cached_property
    def holds(self) -> Holds:
        """Return what keeps the source's minimum and knows who else writes."""
        from fleetctl.usecases.holds import KeptHolds
        from fleetctl.wiring.hands import hands_of

        return KeptHolds(hands_of(self.fleet, self.workspace, self._known_hosts), self.store, self.clock, self.holder)

    def _known_hosts(self, pool: PoolId) -> tuple[Host, ...]:
        from fleetctl.usecases.capacity import known_hosts

        made = known_hosts(self.store, (pool,))
        return (*made, *(h for h in self.fleet.hosts if h.pool == pool and h.id not in {m.id for m in made}))

    @cached_property
    def notices(self) -> Notices:
        """Return what tells of the end of pools' machines; nobody, where no pool has a source of notices."""
        return self.notices_within(1.5)

    def notices_within(self, first_s: float) -> Notices:
        """Return the same, newly made; an API's first answer is waited for so many seconds."""
        from fleetctl.wiring.notices import notices_of

        return notices_of(self.fleet, self.workspace, self._known_hosts, self.clock.now, first_s=first_s)

    def tick_settings(self) -> TickSettings:
        """Return what a tick needs to know of this process and the policy."""
        from fleetctl.usecases.tick import TickSettings

        minimum = {p.id: p.count for p in self.fleet.pools}
        return TickSettings(holder=self.holder, freeze=self.fleet.policy.freeze, minimum=minimum)

    @cached_property
    def ways_home(self) -> WayHomeFiles:
        """Return the local way-home files; needs no store and no fleet file, and makes nothing."""
        from fleetctl.adapters.home.files import WayHomeFiles

        return WayHomeFiles(self.workspace / STATE / "home", self.workspace / STATE / "key")

    def save_ways_home(self, plan: Plan) -> None:
        """Write the way home of every cell that the plan moves, and anew what was written before.

        A cell that the plan is to move from its source has it; of any other, what its file says of its source's release stays.
        """
        from fleetctl.adapters.home.files import make_key

        make_key(self.state_folder / "key")
        moved = {o.cell for o in plan.outcomes if o.kind == "move"}
        begins = {o.cell for o in plan.outcomes if o.kind == "move" and not o.arrived}
        waves = {c: w.index for w in plan.waves for c in w.cells}
        kept = set(self.ways_home.cells()) & {c.id for c in self.fleet.cells}
        for c in sorted(moved | kept):
            way = self._way_home(self.fleet.cell(c), waves.get(c, 0))
            way = replace(way, released=way.released and c not in begins)
            if c in moved or not self._is_written(way):
                self.ways_home.write(way)

    def renew_ways_home(self) -> None:
        """Write the ways home anew that say another thing than the fleet file does now."""
        from fleetctl.adapters.home.files import make_key

        make_key(self.state_folder / "key")
        for c in self.old_ways_home():
            self.ways_home.write(self._way_home(self.fleet.cell(c), self._wave_of(c)))

    def note_released(self, pool: PoolId) -> None:
        """Say in the ways home of the cells that a pool served that it was given back."""
        from fleetctl.usecases.home_choice import readable

        for way in readable(self.ways_home)[0]:
            if way.source == pool and not way.released:
                self.ways_home.write(replace(way, released=True))

    def note_made(self, pool: PoolId | None = None) -> None:
        """Say in the ways home whose source was made again since it was given back that there is one; of this pool, or of any."""
        from fleetctl.usecases.home_choice import readable

        for way in readable(self.ways_home)[0]:
            if way.released and pool in (None, way.source) and not self._is_released(way):
                self.ways_home.write(replace(way, released=False))

    def _is_released(self, way: WayHome) -> bool:
        """Tell whether a way home says released and, where the store answers, nothing of its source was made since."""
        from fleetctl.errors import FleetctlError
        from fleetctl.usecases.ways_back import is_released

        try:
            return way.released and is_released(way, self.store)
        except FleetctlError:
            return way.released

    def _stays_released(self, cell: Cell) -> bool:
        """Tell whether a cell's file says that the source it has was given back, and that still holds."""
        from fleetctl.errors import FleetctlError

        try:
            found = self.ways_home.read(cell.id)
        except FleetctlError:
            return False
        return found.source == cell.source and self._is_released(found)

    def old_ways_home(self) -> tuple[CellId, ...]:
        """Return the fleet's cells whose way home cannot be read, or says another thing than the fleet file does now."""
        kept = set(self.ways_home.cells())
        return tuple(c.id for c in self.fleet.cells if c.id in kept and not self._is_written(self._way_home(c, 0), whatever_wave=True))

    def _wave_of(self, c: CellId) -> int:
        """Return the wave that a cell's way home says, 0 where it cannot be read."""
        from fleetctl.errors import FleetctlError

        try:
            return self.ways_home.read(c).wave
        except FleetctlError:
            return 0

    def _is_written(self, way: WayHome, *, whatever_wave: bool = False) -> bool:
        """Tell whether the cell's file says the same."""
        from fleetctl.errors import FleetctlError

        try:
            found = self.ways_home.read(way.cell)
        except FleetctlError:
            return False
        return replace(found, made_at=way.made_at, wave=way.wave if whatever_wave else found.wave) == way

    def _way_home(self, cell: Cell, wave: int) -> WayHome:
        from fleetctl.adapters.routers.paper import paper_commands
        from fleetctl.adapters.routers.route import backends_of
        from fleetctl.domain.home import WayHome
        from fleetctl.wiring.routers import PINNING

        w = self.fleet.workload(cell.workload)
        connection = self.fleet.router(cell.router.name)
        return WayHome(
            fleet=self.fleet.name,
            cell=cell.id,
            workload=w.id,
            region=cell.region,
            tenant=w.tenant,
            klass=w.klass,
            router=connection,
            source=cell.source,
            cap_bp=self.fleet.policy.cap_bp,
            paper=paper_commands(connection, cell.id, backends_of(self._backends(), cell.id), cell.router.baseline_endpoints),
            made_at=self.clock.now(),
            baseline_backend=cell.router.baseline_backend,
            canary_backend=cell.router.canary_backend,
            endpoints=() if connection.kind in PINNING else cell.router.baseline_endpoints,
            part_of=() if cell.cohort is None else (cell.cohort.of, self.fleet.cell(cell.cohort.of).workload),
            wave=wave,
            released=self._stays_released(cell),
        )

    def lift_ports(self) -> LiftPorts:
        """Return all that lifting a cap touches. Raises ConfigInvalid."""
        from fleetctl.usecases.lift import LiftPorts

        return LiftPorts(store=self.store, records=self.store, clock=self.clock, actor=self.actor, prober=self.prober_of, proof=self.proof)

    def home_ports(self) -> HomePorts:
        """Return all that a return home touches; reads neither the store nor the fleet file."""
        from fleetctl.adapters.routers.route import Backends, backends_of
        from fleetctl.usecases.home import HomePorts
        from fleetctl.wiring.routers import cut_streams, make_prober, make_router, make_together, set_shadow_rate

        def backends(way: WayHome) -> dict[CellId, Backends]:
            usual = backends_of({}, way.cell)
            return {way.cell: Backends(baseline=way.baseline_backend or usual.baseline, canary=way.canary_backend or usual.canary)}

        def router(way: WayHome) -> Router:
            return make_router(way.router, {way.cell: way.source}, backends(way))

        def together(ways: Sequence[WayHome]) -> Together | None:
            names = {c: found for way in ways for c, found in backends(way).items()}
            return make_together(ways[0].router, {way.cell: way.source for way in ways}, names)

        def prober(way: WayHome) -> Prober:
            return make_prober(
                way.router,
                backends(way),
                pin_key=lambda: self._pin_key(way.router),
                sources={way.cell: way.source},
                endpoints=lambda _, arm: way.endpoints if arm == "baseline" else (),
            )

        def cut(way: WayHome) -> int:
            return cut_streams(way.router, way.cell, backends(way))

        def hush(way: WayHome) -> None:
            if way.router.mirrors:
                set_shadow_rate(router(way), way.cell, 0.0, 0.0, 0.0)

        return HomePorts(
            router=router,
            prober=prober,
            ways=self.ways_home,
            clock=self.clock,
            store=lambda: self.store,
            cut=cut,
            hush=hush,
            together=together,
        )
