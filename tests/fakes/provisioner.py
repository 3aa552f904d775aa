"""Provision, tests: a provisioner in memory that keeps the port's contract. Never starts a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.domain.canonical import canonical, digest
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure, ProvisionPlan, ReleasePermit, ResourceChange
from fleetctl.errors import PlanStale, ProvisionFailed

_TYPE = "terraform_data"


@dataclass(slots=True)
class _Made:
    shape: tuple[str, str, str]
    hold: bool
    tainted: bool = False


@dataclass(slots=True)
class _State:
    serial: int = 0
    hosts: dict[HostId, _Made] = field(default_factory=dict)
    named: tuple[HostId, ...] = ()


class FakeProvisioner:
    """Makes hosts of nothing.

    Args:
        fail: hosts whose making fails while they are in here; locked_by: who holds every state, "" for nobody.
    """

    def __init__(self, stack: str = "lab") -> None:
        self.fail: set[HostId] = set()
        self.locked_by = ""
        self.applied = 0
        self._stack = stack
        self._states: dict[PoolId, _State] = {}
        self._specs: dict[PoolId, PoolSpec] = {}

    def plan(self, pools: Sequence[PoolSpec], run: Path) -> ProvisionPlan:
        """Save what apply will do."""
        self._unlocked("planning")
        run.mkdir(parents=True, exist_ok=True, mode=0o700)
        changes: list[ResourceChange] = []
        serials: dict[str, int] = {}
        for spec in pools:
            state = self._states.get(spec.pool, _State())
            serials[spec.pool] = state.serial
            self._specs[spec.pool] = spec
            changes.extend(_changes(spec, state))
        path = run / f"provision-{digest(tuple(s.pool for s in pools))[:12]}.json"
        path.write_bytes(canonical({"pools": tuple(pools), "serials": serials}))
        path.chmod(0o600)
        return ProvisionPlan(
            pools=tuple(s.pool for s in pools),
            path=str(path),
            digest=digest(path.read_bytes()),
            changes=tuple(changes),
            state_lineage=",".join("fake" if serials[s.pool] else "" for s in pools),
            state_serial=max(serials.values(), default=0),
            stack=self._stack,
            tool="fake 1",
        )

    def apply(self, p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        """Do exactly what was saved."""
        path = Path(p.path)
        if not path.is_file() or digest(path.read_bytes()) != p.digest:
            raise ProvisionFailed("provision.changed", f"{path} is not the file that was planned", hint="Run: fleetctl provision")
        self._unlocked("applying")
        if max((self._states.get(pool, _State()).serial for pool in p.pools), default=0) != p.state_serial:
            raise PlanStale("provision.stale", "the state has changed since the plan was made", hint="Run: fleetctl provision")
        self.applied += 1
        made: list[str] = []
        counts = {"create": 0, "update": 0, "delete": 0}
        for change in p.changes:
            if change.pool is None or set(change.actions) <= {"no-op", "read"}:
                continue
            state = self._states.setdefault(change.pool, _State())
            state.serial += 1
            if self._do(change, self._specs[change.pool], state, counts, on):
                made.extend([change.address] if "create" in change.actions else [])
            else:
                state.named = ()
                return ProvisionFailure(
                    code="provision.apply_failed", text=f"applying pool {change.pool}: {change.address}: no room", made=tuple(made)
                )
        for pool in p.pools:
            state = self._states.setdefault(pool, _State())
            state.named = tuple(HostId(f"{pool}-{n + 1}") for n in range(self._specs[pool].count))
        return Provisioned(added=counts["create"], changed=counts["update"], destroyed=counts["delete"], seconds=0.0)

    def outputs(self, pool: PoolId) -> tuple[Host, ...]:
        """Return the hosts of the last apply that finished."""
        state = self._states.get(pool, _State())
        return tuple(Host(id=i, pool=pool, address="127.0.0.1", connection="local", variables=_variables(i, state)) for i in state.named)

    def ids(self, pool: PoolId) -> frozenset[str]:
        """Return the hosts that were made."""
        return frozenset(self._states.get(pool, _State()).hosts)

    def adopt(self, pool: PoolId, address: str, id_: str) -> None:
        """Take a host in."""
        self._unlocked("adopting")
        spec = self._specs[pool]
        made = _Made(shape=(spec.vendor, spec.sku, spec.region), hold=spec.hold)
        self._states.setdefault(pool, _State()).hosts[_host_of(address)] = made

    def drift(self, pool: PoolId) -> tuple[Diagnostic, ...]:
        """Compare with what was last planned."""
        state = self._states.get(pool)
        if state is None or not state.hosts:
            return ()
        return tuple(
            Diagnostic(severity="warning", code="provision.drift", text=f"{c.address}: would {' and '.join(c.actions)}", path=c.address)
            for c in _changes(self._specs[pool], state)
            if c.actions != ("no-op",)
        )

    def destroy(self, pool: PoolId, permit: ReleasePermit) -> None:
        """Forget the hosts of a pool."""
        if permit.pool != pool or not permit.approvals:
            raise ProvisionFailed("provision.permit", f"the permit does not allow destroying pool {pool}", hint="Run: fleetctl release")
        self._unlocked("destroying")
        self._states.pop(pool, None)

    def _unlocked(self, what: str) -> None:
        if self.locked_by:
            raise ProvisionFailed("provision.locked", f"{what}: the state is locked by {self.locked_by}", hint="Wait, then run it again.")

    def _do(self, change: ResourceChange, spec: PoolSpec, state: _State, counts: dict[str, int], on: Callable[[Progress], None]) -> bool:
        host = _host_of(change.address)
        for action in change.actions:
            on(Progress(subject=change.address, step=action, state="started"))
            if action == "delete":
                del state.hosts[host]
            else:
                state.hosts[host] = _Made(shape=(spec.vendor, spec.sku, spec.region), hold=spec.hold)
                if action == "create" and host in self.fail:
                    state.hosts[host].tainted = True
                    on(Progress(subject=change.address, step=action, state="failed", text="no room"))
                    return False
            counts[action] += 1
            on(Progress(subject=change.address, step=action, state="changed"))
        return True


def _changes(spec: PoolSpec, state: _State) -> list[ResourceChange]:
    wanted = [HostId(f"{spec.pool}-{n + 1}") for n in range(spec.count)]
    found: list[ResourceChange] = []
    for host in [*wanted, *(h for h in state.hosts if h not in wanted)]:
        actions, reason = _actions(host in wanted, state.hosts.get(host), spec)
        found.append(ResourceChange(address=f'{_TYPE}.host["{host}"]', type=_TYPE, actions=actions, pool=spec.pool, reason=reason))
    return found


def _actions(is_wanted: bool, made: _Made | None, spec: PoolSpec) -> tuple[tuple[str, ...], str]:
    if made is None:
        return ("create",), ""
    if not is_wanted:
        return ("delete",), "delete_because_each_key"
    if made.tainted:
        return ("delete", "create"), "replace_because_tainted"
    if made.shape != (spec.vendor, spec.sku, spec.region):
        return ("delete", "create"), "replace_because_cannot_update"
    return (("no-op",), "") if made.hold == spec.hold else (("update",), "")


def _host_of(address: str) -> HostId:
    return HostId(address.split('"')[1])


def _variables(host: HostId, state: _State) -> tuple[tuple[str, str], ...]:
    vendor, sku, _ = state.hosts[host].shape
    return (("folder", f"/fake/{host}"), ("sku", sku), ("vendor", vendor))
