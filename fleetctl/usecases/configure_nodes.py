"""Configure, use-case layer: take hosts to what a release of the matrix says, or undo it. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from difflib import get_close_matches
from fnmatch import fnmatchcase

from fleetctl.domain.canonical import digest
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.matrix import Matrix, Wanted
from fleetctl.domain.model_files import ModelFile, ModelStore
from fleetctl.domain.people import Diagnostic, Facts
from fleetctl.domain.pool import Host, Vendor
from fleetctl.domain.provision import HostResult, Progress
from fleetctl.domain.units import Instant
from fleetctl.errors import ConfigInvalid, ConfigureFailed
from fleetctl.planning.check_matrix import check_matrix, check_platforms, keys_of, release_variables
from fleetctl.planning.matrix_pins import Pins, with_pins
from fleetctl.ports.state import Records
from fleetctl.usecases.capacity import CapacityPorts, note, take
from fleetctl.usecases.ready_time import MAKING, Stopwatch

PLAYS = ("site", "rocm_node", "nvidia_node", "health_gate", "drain", "fallback_nvidia", "upgrade", "uninstall")

WITH_VALUES = (*MAKING, "upgrade", "fallback_nvidia")
"""Plays that need secrets and signed addresses; a look at health and the way back ask for no credential."""


DEFAULT_RUN_S = 3600
"""Longest run where nothing is asked, in seconds, without the deep checks of the health gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureDone:
    """Hosts that a play has brought to its end, so that an interrupted run is resumed; record kind of its own.

    Args:
        wanted: digest of what the hosts shall be; another one starts anew.
    """

    pool: PoolId
    play: str
    wanted: str
    hosts: tuple[HostId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeManifest:
    """What a host said of itself when it was last made a node; record kind of its own, by host.

    Args:
        values: release, driver, ROCm, layer, image digest, versions of packages, digest of the playbooks; empty once it was undone.
    """

    host: HostId
    pool: PoolId
    values: Mapping[str, str]
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """What a run is asked for.

    Args:
        roles: variables of every host; by_host: of one; keys: armoured key by repository.
        stores: where files of models lie, by name; models: the files.
    """

    pool: PoolId
    hosts: tuple[Host, ...]
    wanted: Wanted
    roles: Mapping[str, object]
    by_host: Mapping[str, Mapping[str, object]]
    pins: Pins
    keys: Mapping[str, str]
    stores: Mapping[str, ModelStore] = field(default_factory=dict)
    models: tuple[ModelFile, ...] = ()
    vendor: Vendor = "amd"


def on_provisioned(nodes: Nodes, hosts: Sequence[Host]) -> Nodes:
    """Return the nodes with the hosts that provision made instead of those that the file names; what it says of one by its name stays.

    Raises:
        ConfigInvalid: config.nodes, where the hosts are another pool's.
    """
    if other := next((h for h in hosts if h.pool != nodes.pool), None):
        raise ConfigInvalid("config.nodes", f"the nodes file is of pool {nodes.pool}, and host {other.id} is one of {other.pool}")
    users = {h.id: h.user for h in nodes.hosts}
    return replace(nodes, hosts=tuple(h if h.user else replace(h, user=users.get(h.id, "")) for h in hosts))


def check_nodes(nodes: Nodes, matrix: Matrix, today: date) -> tuple[Matrix, tuple[Diagnostic, ...]]:
    """Return the matrix with the pins filled in, and the warnings.

    Raises:
        ConfigInvalid: config.matrix, with everything that keeps the run from starting; nothing was changed.
    """
    pinned, faults = with_pins(matrix, nodes.pins)
    platforms = {str(row["host_tuning_platform"]) for row in (nodes.roles, *nodes.by_host.values()) if "host_tuning_platform" in row}
    found = (*faults, *check_matrix(pinned, nodes.wanted, today), *check_platforms(pinned, nodes.wanted, platforms))
    errors = [d for d in found if d.severity == "error"]
    if errors:
        raise ConfigInvalid(
            "config.matrix",
            f"pool {nodes.pool} cannot become {nodes.wanted.release}; nothing was changed.",
            hint="Mend the nodes file (its pins fill what no source gives), then run the same command again.",
            details=tuple(f"{d.path}: {d.text}" for d in errors),
        )
    return pinned, tuple(d for d in found if d.severity == "warning")


def refuse_unknown(nodes: Nodes, known: Collection[str]) -> None:
    """Refuse variables that no role has: a mistyped one would silently do nothing.

    Raises:
        ConfigInvalid: config.variable, with the nearest name.
    """
    places = {"roles": nodes.roles} | {f"hosts.{h}.roles": row for h, row in nodes.by_host.items()}
    details = []
    for place, row in places.items():
        for name in sorted(set(row) - set(known)):
            near = get_close_matches(name, known, n=1)
            details.append(f"{place}.{name} is no variable of a role" + (f"; the nearest is {near[0]}" if near else ""))
    if details:
        raise ConfigInvalid(
            "config.variable",
            f"pool {nodes.pool} has {len(details)} unknown variables; nothing was changed.",
            hint="Mend the nodes file; the pages of the roles are in docs/reference/roles.",
            details=tuple(details),
        )


def longest_run(nodes: Nodes, play: str, tags: Sequence[str], deep: Callable[[str], Mapping[str, int]], asked_s: int | None) -> int:
    """Return the longest that a run may take, in seconds: what is asked, else enough for the deep checks of the health gate too.

    Args:
        deep: the deep checks of a profile by name, with the seconds that each may take.
        asked_s: of the command line, None where nothing is asked.

    Raises:
        ConfigInvalid: config.timeout: too short for a deep check, which would be cut off, and begun again by the next run.
    """
    profile = nodes.roles.get("health_gate_profile", "h100" if play == "nvidia_node" or nodes.vendor == "nvidia" else "mi300x")
    gated = play in (*MAKING, "upgrade", "health_gate") and (not tags or "health_gate" in tags)
    tier = "deep" if play == "upgrade" else nodes.roles.get("health_gate_tier", "auto")
    without = nodes.roles.get("health_gate_without", [])
    checks = deep(str(profile)) if gated and tier != "quick" else {}
    left = {name: s for name, s in checks.items() if not isinstance(without, list) or name not in without}
    if asked_s is None:
        one_by_one = len(nodes.hosts) if "node_serial" in nodes.roles or play == "upgrade" else 1
        return DEFAULT_RUN_S + sum(left.values()) * one_by_one
    if short := {name: s for name, s in left.items() if s >= asked_s}:
        name, seconds = max(short.items(), key=lambda row: row[1])
        raise ConfigInvalid(
            "config.timeout",
            f"a run of at most {asked_s} s would cut off {name}, which may take {seconds} s; nothing was changed.",
            hint=f"Leave --timeout out, give more than {sum(left.values())}, or name the check in health_gate_without of the nodes file.",
        )
    return asked_s


def variables_of(nodes: Nodes, pinned: Matrix, commit: str) -> dict[str, object]:
    """Return the variables of a run: the release's, then the file's, which may not say otherwise.

    Raises:
        ConfigInvalid: config.matrix, a role's variable that the release already gives.
    """
    given = release_variables(pinned, nodes.wanted)
    if nodes.models:
        # Their addresses are signed when the run begins; until then a file is known by its store, its name there and its SHA-256.
        given["model_store_files"] = [{"path": f.path, "sha256": f.sha256, "store": f.store, "key": f.key} for f in nodes.models]
    clash = sorted(set(given) & (set(nodes.roles) | {k for row in nodes.by_host.values() for k in row}))
    if clash:
        raise ConfigInvalid(
            "config.matrix", f"{', '.join(clash)} comes from the release or from `models` and cannot be given as well; nothing was changed."
        )
    by_host = {h.id: dict(nodes.by_host.get(h.id, {})) for h in nodes.hosts}
    return {
        **given,
        **nodes.roles,
        "apt_ready_keys": keys_of(pinned, nodes.wanted, nodes.keys),
        "node_manifest_commit": commit,
        "by_host": by_host,
    }


def chosen_hosts(hosts: Sequence[Host], limit: str) -> tuple[Host, ...]:
    """Return the hosts that one of the comma-separated patterns matches, all where it is empty.

    Raises:
        ConfigInvalid: config.limit, nothing matches.
    """
    patterns = [p.strip() for p in limit.split(",") if p.strip()]
    found = tuple(h for h in hosts if not patterns or any(fnmatchcase(h.id, p) for p in patterns))
    if not found:
        known = ", ".join(h.id for h in hosts) or "none"
        raise ConfigInvalid("config.limit", f"no host matches {limit!r}; there is: {known}")
    return found


def configure_nodes(
    nodes: Nodes,
    play: str,
    variables: Mapping[str, object],
    ports: CapacityPorts,
    on: Callable[[Progress], None],
    *,
    limit: str = "",
    resume: bool = False,
    check: bool = False,
    tags: Sequence[str] = (),
    values: Callable[[Mapping[str, object]], Mapping[str, object]] = dict,
) -> tuple[HostResult, ...]:
    """Run a play over the nodes; what an interrupted run has finished is left out with `resume`.

    Args:
        check: only predicted; nothing is remembered.
        tags: the only roles that are run; what they finished does not count for a run of all.
        values: puts secrets and signed addresses into the variables once there is a host to run on; nothing of them is remembered.

    Raises:
        ConfigureFailed: configure.failed, configure.unreachable, configure.cancelled; LeaseHeld: somebody else works on the pool.
    """
    if play not in PLAYS:
        raise ConfigureFailed("configure.no_play", f"there is no play {play!r}; there is: {', '.join(PLAYS)}")
    what = (nodes.wanted, sorted(h.id for h in nodes.hosts), repr(sorted(variables.items(), key=lambda kv: kv[0])))
    wanted = digest((*what, *sorted(tags)))
    hosts = chosen_hosts(nodes.hosts, limit)
    before = ports.records.get(ConfigureDone, nodes.pool)
    same = before.hosts if before and (before.play, before.wanted) == (play, wanted) else ()
    known = before.hosts if before and before.play in MAKING else ()
    left = tuple(h for h in hosts if not resume or h.id not in same)
    if not left:
        return ()
    variables = _of_hosts(nodes, play, left, variables, values)
    lease = take(ports, nodes.pool)
    kept = [h for h in same if h not in {host.id for host in left}]

    def seen(p: Progress) -> None:
        on(p)
        if p.last and not check:
            kept.append(HostId(p.subject))  # at once: whatever ends the run, --resume knows it
            _remember_manifests(nodes.pool, play, kept[-1:], ports)
            ports.records.put(nodes.pool, ConfigureDone(pool=nodes.pool, play=play, wanted=wanted, hosts=tuple(kept)))

    try:
        watch = Stopwatch(seen)
        results = ports.configurator.run(play, left, variables, lease.token, watch)
        if not check:
            bare = [r for r in results if r.host not in known and not tags]
            if took := watch.record(nodes.pool, play, bare, ports.clock.now()):
                ports.records.put(nodes.pool, took)
            good = [r.host for r in results if r.state == "ok"]
            _remember_manifests(nodes.pool, play, good, ports)
            finished = (*(h for h in same if h not in {r.host for r in results}), *good)
            ports.records.put(nodes.pool, ConfigureDone(pool=nodes.pool, play=play, wanted=wanted, hosts=finished))
    finally:
        ports.store.release(lease)
    _judge(nodes.pool, play, results, ports, check)
    return results


def _of_hosts(
    nodes: Nodes,
    play: str,
    left: Sequence[Host],
    variables: Mapping[str, object],
    values: Callable[[Mapping[str, object]], Mapping[str, object]],
) -> Mapping[str, object]:
    """Return a play's variables, with the values that it needs and of no other host than those that are left."""
    if play in WITH_VALUES:
        variables = values(variables)
    elif nodes.models:
        variables = {k: v for k, v in variables.items() if k != "model_store_files"}
    by_host = variables.get("by_host", {})
    return {**variables, "by_host": {h.id: by_host[h.id] for h in left if isinstance(by_host, Mapping) and h.id in by_host}}


def _remember_manifests(pool: PoolId, play: str, hosts: Sequence[HostId], ports: CapacityPorts) -> None:
    for host in hosts:
        values = {} if play == "uninstall" else ports.configurator.manifest(host)
        if values or play == "uninstall":
            ports.records.put(host, NodeManifest(host=host, pool=pool, values=values, at=ports.clock.now()))


def node_facts(records: Records) -> tuple[Facts, ...]:
    """Return what nodes said of themselves, for the inventory."""
    return tuple(
        Facts(
            values={"node": m.host, **{k: v for k, v in m.values.items() if k not in ("node", "pool")}, "pool": m.pool},
            source=f"configure {m.pool}",
            seen_at=m.at,
        )
        for m in records.all(NodeManifest)
        if m.values
    )


def _judge(pool: PoolId, play: str, results: Sequence[HostResult], ports: CapacityPorts, check: bool) -> None:
    bad = [r for r in results if r.state != "ok"]
    if not check:
        note(ports, f"configure.{'failed' if bad else 'done'}", f"{pool}: {play}: {len(results) - len(bad)} of {len(results)} hosts ready")
    if not bad:
        return
    details = tuple(f"{r.host}: {r.state}: {r.detail}" for r in bad)
    hint = "Mend the cause, then run the same command with --resume."
    text = f"{len(bad)} of {len(results)} hosts of {pool} are not ready."
    if any(r.state == "failed" for r in bad):
        raise ConfigureFailed("configure.failed", text, hint=hint, details=details)
    if any(r.state == "unreachable" for r in bad):
        raise ConfigureFailed("configure.unreachable", text, hint=hint, details=details)
    raise ConfigureFailed("configure.cancelled", text, hint=hint, details=details)
