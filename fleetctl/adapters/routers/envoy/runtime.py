"""Traffic, adapter layer: Envoy's runtime, over its admin interface and in the file from which it restarts. Never decides a weight.

Per cell there are four keys: the weight of each of its two clusters, the token, and "<cap bp>:<lease, epoch ms>:<token>". Whoever fences
writes the token alone, whoever sets writes it beside the lease alone, and the higher one counts: so neither undoes what the other has just
done, and a fence that comes late lowers no floor. The file is a runtime resource (RTDS) that Envoy watches; what the admin interface sets
stands above it until Envoy restarts.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.lock import write_together
from fleetctl.adapters.routers.open_writes import OPEN_S, OpenWrites
from fleetctl.adapters.routers.route import write_private
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import FULL_BP
from fleetctl.errors import ConfigInvalid, TrafficNotApplied

RUNTIME_FILE = "runtime.json"
_LOCK = ".runtime.lock"
_ANSWER_MAX = 64 << 20
_LEASE = re.compile(r"(\d{1,16}):(\d{1,16})(?::(\d{1,16}))?\Z")
_TOKEN = re.compile(r"\d{1,16}\Z")
_RESOURCE = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
_PREFIX = "fleetctl"


def weight_key(cluster: str) -> str:
    """Return the runtime key of a cluster's weight; of "" the prefix that Envoy is told."""
    return f"{_PREFIX}.weight.{cluster}" if cluster else f"{_PREFIX}.weight"


def token_key(c: str) -> str:
    """Return the runtime key of a cell's token."""
    return f"{_PREFIX}.token.{c}"


def lease_key(c: str) -> str:
    """Return the runtime key of a cell's cap and lease."""
    return f"{_PREFIX}.lease.{c}"


def shadow_key(c: str) -> str:
    """Return the runtime key of a cell's mirrored share, in millionths."""
    return f"{_PREFIX}.shadow.{c}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands for one cell.

    Args:
        bp, cap_bp: 0 to 10,000; lease_ms: epoch milliseconds.
        baseline, canary: names of its clusters; "" means `<cell>_baseline` and `<cell>_canary`.
    """

    bp: int = 0
    cap_bp: int = 0
    token: int = 0
    lease_ms: int = 0
    baseline: str = ""
    canary: str = ""

    def split_entries(self, c: CellId) -> dict[str, str]:
        """Return what a set writes."""
        return {
            weight_key(self.canary or f"{c}_canary"): str(self.bp),
            weight_key(self.baseline or f"{c}_baseline"): str(FULL_BP - self.bp),
            lease_key(c): f"{self.cap_bp}:{self.lease_ms}:{self.token}",
        }

    def fence_entries(self, c: CellId) -> dict[str, str]:
        """Return what a fence writes."""
        return {token_key(c): str(self.token)}


def standing_of(c: CellId, values: Mapping[str, str], *, baseline: str = "", canary: str = "") -> Standing | None:
    """Return what runtime values say of a cell, None where its weight is not among them; Envoy takes weights as shares of their sum.

    Raises:
        TrafficNotApplied: traffic.not_shown, where a weight is no number.
    """
    shown = values.get(weight_key(canary or f"{c}_canary"))
    rest = values.get(weight_key(baseline or f"{c}_baseline"))
    if shown is None or rest is None:
        return None
    if not (_is_weight(shown) and _is_weight(rest)):
        text = f"cell {c}: Envoy shows weights {shown[:20]!r} and {rest[:20]!r}, which are none: somebody else writes there."
        raise TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor")
    total = int(shown) + int(rest)
    found = _LEASE.match(values.get(lease_key(c), ""))
    cap, lease, kept = (int(part or 0) for part in found.groups()) if found else (0, 0, 0)
    token = values.get(token_key(c), "0")
    return Standing(
        bp=round(int(shown) * FULL_BP / total) if total else 0,
        cap_bp=cap,
        token=max(kept, int(token) if _TOKEN.match(token) else 0),
        lease_ms=lease,
        baseline=baseline,
        canary=canary,
    )


def _is_weight(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


class Admin:
    """The admin interface of one Envoy, which must be reachable by ours alone: who reaches it can do everything.

    Args:
        url: http://<host>:<port>.
    """

    def __init__(self, url: str, router: str) -> None:
        address = urlsplit(url)
        try:
            port = address.port
        except ValueError:
            port = None
        if address.scheme != "http" or not address.hostname or port is None or address.path not in ("", "/"):
            text = f"router {router}: admin {url[:80]!r} is no address such as http://127.0.0.1:9901."
            raise ConfigInvalid("config.router", text, hint="Correct the fleet file.")
        self._host, self._port, self._router = address.hostname, port, router
        self._open = OpenWrites()

    def runtime(self, deadline: Deadline) -> dict[str, str]:
        """Return every runtime key with the value that counts. Raises TrafficNotApplied (traffic.router_down, traffic.not_shown)."""
        answer = self._json("GET", "/runtime", deadline)
        entries = answer.get("entries") if isinstance(answer, dict) else None
        if not isinstance(entries, dict):
            raise self._odd("its runtime")
        return {key: str(entry.get("final_value", "")) for key, entry in entries.items() if isinstance(entry, dict)}

    def mirrors(self, c: CellId, deadline: Deadline) -> bool:
        """Tell whether a route of its configuration mirrors by a cell's share. Raises TrafficNotApplied (traffic.router_down)."""
        status, body = self._ask("GET", "/config_dump", deadline)
        return status == 200 and b"request_mirror_policies" in body and json.dumps(shadow_key(c)).encode() in body

    def modify(self, values: Mapping[str, str], deadline: Deadline, *, place: str = "", late: Callable[[], None] = lambda: None) -> None:
        """Set runtime keys, all in one snapshot. Raises TrafficNotApplied (traffic.router_down, traffic.not_shown).

        Args:
            place: what it changes, for `open_writes`; late: done after it where the answer came when nobody waited for it any more.
        """
        query = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in values.items())
        answers: list[tuple[int, bytes]] = []

        def ask() -> None:
            patient = Deadline(deadline.left_s() + OPEN_S)
            answers.append(self._asked("POST", f"/runtime_modify?{query}", patient, until_sent=deadline))

        try:
            within(deadline, lambda: self._open.write(place, deadline, ask, late), f"{self._router}: writes")
        except TimeoutError as e:
            raise self._down(str(e)) from e
        status, body = answers[0]
        if status != 200 or body.strip() != b"OK":
            said = body[:120].decode("utf-8", "replace").strip() or "nothing"
            text = f"router {self._router} refused the weights: it answered {status}, {said!r}."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Its runtime needs an admin_layer. Run: fleetctl doctor")

    def open_writes(self, place: str) -> tuple[threading.Event, ...]:
        """Return what is set when a change that nobody waits for any more has ended, for each that may still come."""
        return self._open.of(place)

    def hosts(self, clusters: tuple[str, ...], deadline: Deadline) -> tuple[HostRow, ...]:
        """Return the servers of these clusters. Raises TrafficNotApplied (traffic.router_down, traffic.not_shown)."""
        answer = self._json("GET", "/clusters?format=json", deadline)
        listed = answer.get("cluster_statuses") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise self._odd("its clusters")
        found = []
        for cluster in listed:
            if isinstance(cluster, dict) and cluster.get("name") in clusters:
                found += [_host(str(cluster["name"]), host) for host in cluster.get("host_statuses") or () if isinstance(host, dict)]
        return tuple(found)

    def is_configured(self, text: str, deadline: Deadline) -> bool:
        """Tell whether a text stands in Envoy's configuration. Raises TrafficNotApplied (traffic.router_down)."""
        status, body = self._ask("GET", "/config_dump", deadline)
        return status == 200 and text.encode() in body

    def _json(self, method: str, path: str, deadline: Deadline) -> object:
        status, body = self._ask(method, path, deadline)
        try:
            return json.loads(body) if status == 200 else None
        except (ValueError, RecursionError):
            return None

    def _ask(self, method: str, path: str, deadline: Deadline) -> tuple[int, bytes]:
        try:
            # a header may trickle for ever
            return within(deadline, lambda: self._asked(method, path, deadline, until_sent=deadline), self._router)
        except TimeoutError as late:
            raise self._down(str(late)) from late

    def _asked(self, method: str, path: str, deadline: Deadline, *, until_sent: Deadline) -> tuple[int, bytes]:
        """Ask once; what could not be sent before `until_sent` is not sent."""
        link = http.client.HTTPConnection(self._host, self._port, timeout=max(0.001, until_sent.left_s()))
        try:
            link.connect()
            if until_sent.left_s() <= 0:
                raise TimeoutError("no answer in time")
            link.sock.settimeout(max(0.001, deadline.left_s()))
            link.request(method, path, body=b"" if method == "POST" else None)
            got = link.getresponse()
            parts, size = [], 0
            while part := got.read1(1 << 20):
                size += len(part)
                if size > _ANSWER_MAX or deadline.left_s() <= 0:
                    raise TimeoutError("its answer does not end")
                parts.append(part)
            if got.length:
                raise http.client.IncompleteRead(b"", got.length)
            return got.status, b"".join(parts)
        except (OSError, http.client.HTTPException) as failed:
            raise self._down(str(failed)[:120] or type(failed).__name__) from failed
        finally:
            link.close()

    def _down(self, why: str) -> TrafficNotApplied:
        text = f"router {self._router} does not answer on http://{self._host}:{self._port}: {why}."
        return TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor")

    def _odd(self, what: str) -> TrafficNotApplied:
        text = f"what answers as the admin interface of router {self._router} does not show {what}."
        return TrafficNotApplied("traffic.not_shown", text, hint="Run: fleetctl doctor")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """One server of a cluster.

    Args:
        name: its hostname in the bootstrap; open_requests: those that are open now.
        is_spare: of a lower priority.
    """

    cluster: str
    name: str
    is_up: bool
    is_spare: bool
    open_requests: int


def _host(cluster: str, row: Mapping[str, object]) -> HostRow:
    health = row.get("health_status")
    failed = isinstance(health, dict) and (
        any(value is True for key, value in health.items() if key.startswith("failed"))
        or health.get("eds_health_status") not in (None, "HEALTHY")
    )
    stats = row.get("stats")
    active = [s.get("value", 0) for s in stats if isinstance(s, dict) and s.get("name") == "rq_active"] if isinstance(stats, list) else []
    return HostRow(
        cluster=cluster,
        name=str(row.get("hostname", "")),
        is_up=not failed,
        is_spare=row.get("priority", 0) not in (0, None),
        open_requests=int(active[0]) if active else 0,
    )


def read_runtime_file(path: Path) -> dict[CellId, Standing]:
    """Return what the file says of cells whose clusters have our usual names; nothing where it is missing or broken."""
    values = _values(path)
    found: dict[CellId, Standing] = {}
    for key in values:
        if key.startswith(lease_key("")):
            c = CellId(key.removeprefix(lease_key("")))
            with suppress(TrafficNotApplied):
                standing = standing_of(c, values)
                if standing is not None:
                    found[c] = standing
    return found


def write_runtime_file(path: Path, cells: Mapping[CellId, Standing]) -> None:
    """Replace the file by these cells' keys, 0600. Raises OSError."""
    values: dict[str, str] = {}
    for c, standing in cells.items():
        values |= standing.split_entries(c) | standing.fence_entries(c)
    _replace(path, values)


def write_standing(path: Path, c: CellId, new: Standing, *, is_fence: bool = False, floor: int | None = None) -> None:
    """Put one cell's keys into the file by an atomic rename, unless a higher token than `floor` (its own) stands there.

    Args:
        is_fence: only the token.

    Raises:
        OSError: it could not be written, what stands there cannot be read, or its lock was held for over 150 ms.
    """
    item = (c, new, is_fence, new.token if floor is None else floor)
    write_together(path.parent / _LOCK, item, lambda items: _write_all(path, items))


def _write_all(path: Path, items: Sequence[tuple[CellId, Standing, bool, int]]) -> None:
    before = _values(path, strict=True)
    values = dict(before)
    for c, new, is_fence, floor in items:
        token = values.get(token_key(c), "0")
        if _TOKEN.match(token) and int(token) > floor:
            continue
        values |= new.fence_entries(c) if is_fence else new.split_entries(c) | new.fence_entries(c)
    if values != before:
        _replace(path, values)


def _values(path: Path, *, strict: bool = False) -> dict[str, str]:
    """Return the file's keys; a missing file has none. A broken one has none either, or raises OSError where `strict`: others are in it."""
    try:
        layer = json.loads(path.read_bytes())["resources"][0]["layer"]
        return {str(key): str(value) for key, value in layer.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
        if strict:
            raise OSError(f"{path} cannot be read as a runtime file: {type(e).__name__}") from e
        return {}


def _replace(path: Path, values: Mapping[str, str]) -> None:
    layer = {key: value if not value.isdigit() or key.startswith(token_key("")) else int(value) for key, value in values.items()}
    document = {"version_info": "1", "resources": [{"@type": _RESOURCE, "name": _PREFIX, "layer": layer}]}
    write_private(path, json.dumps(document, indent=1) + "\n")
