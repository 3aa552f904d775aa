"""Coming home, adapter layer: proves a pool's replicas by real completions through HAProxy, pinned to the arm. Never a TCP check."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.route import PIN_HEADER, SERVER_HEADER
from fleetctl.domain.evidence import Arm
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, is_id
from fleetctl.domain.split import Readiness
from fleetctl.errors import ConfigInvalid, TrafficNotApplied

PROBE_LIMIT_S = 5.0
_LIST_SHARE_S = 1.0
_MAX_ASKED = 64
"""Most completions asked for at a time."""
_ANSWER_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A replica of one side, as the router names it and holds it: up or not."""

    name: str
    is_up: bool


Replicas = Callable[[CellId, Arm, Deadline], tuple[Replica, ...]]
"""Asks the router for the replicas of one side of a cell. Raises TrafficNotApplied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """One answer; `server` is empty where it proves nothing."""

    server: str
    why: str
    at: float


class CompletionProber:
    """Asks every replica of a cell in a pool for a completion of one token.

    Args:
        connection: setting `url`.
        replicas: asks the router which replicas a side of a cell has.
        pin_key: returns the key of the pin header when it is needed.
        sources: source pool per cell; any other pool is the target.
        models: model per cell; the server is asked for its own list where a cell is missing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        replicas: Replicas,
        pin_key: Callable[[], str],
        sources: Mapping[CellId, PoolId],
        models: Mapping[CellId, str] | None = None,
    ) -> None:
        address = urlsplit(connection.settings.get("url", ""))
        if address.scheme != "http" or not address.hostname:
            raise ConfigInvalid(
                "config.router", f"router {connection.name} needs the setting url (http://...).", hint="Correct the fleet file."
            )
        self._name = connection.name
        self._host, self._port = address.hostname, address.port or 80
        self._replicas = replicas
        self._pin_key = pin_key
        self._sources = dict(sources)
        self._models = dict(models or {})

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        """Ask until every replica has answered once or 5 s are over, and return what answered.

        Raises:
            TrafficNotApplied: traffic.router_down, traffic.unknown_cell.
        """
        if not is_id(c) or c not in self._sources:
            raise TrafficNotApplied("traffic.unknown_cell", f"the prober of router {self._name} does not know cell {c[:70]!r}.")
        began = time.monotonic()
        deadline = Deadline(PROBE_LIMIT_S)
        arm: Arm = "baseline" if self._sources[c] == pool else "canary"
        rows = self._replicas(c, arm, Deadline(_LIST_SHARE_S))
        wanted = {row.name for row in rows}
        open_now = {row.name for row in rows if row.is_up}
        if not wanted:
            return Readiness(pool=pool, cell=c, ready=0, total=0, age_s=0.0, detail=f"cell {c} has no replica on {arm}")
        proven, why = self._collect(c, arm, wanted, open_now, deadline)
        oldest = min(proven.values(), default=began)
        missing = sorted(wanted - set(proven))
        detail = f"no completion from {', '.join(missing)}" + (f" ({why})" if why else "") if missing else ""
        return Readiness(pool=pool, cell=c, ready=len(proven), total=len(wanted), age_s=time.monotonic() - oldest, detail=detail)

    def _collect(self, c: CellId, arm: Arm, wanted: set[str], open_now: set[str], deadline: Deadline) -> tuple[dict[str, float], str]:
        """Ask as many at a time as are missing; a server that the router holds for down is asked for in the first round only."""
        answers: queue.SimpleQueue[_Proof] = queue.SimpleQueue()
        headers = {PIN_HEADER: f"{self._pin_key()}:{arm}", "content-type": "application/json"}
        # found out once: with a second request for each try, a router that takes its two servers in turn would show the same one for ever
        model = self._models.get(c, "") or _listed((self._host, self._port), f"/{c}", headers, deadline)
        proven: dict[str, float] = {}
        why = ""
        asked = in_flight = 0
        limit = min(4 * len(wanted) + 4, 4 * _MAX_ASKED)
        hoped = set(wanted)
        while hoped - set(proven) and deadline.left_s() > 0:
            while in_flight < min(len(hoped - set(proven)), _MAX_ASKED) and asked < limit:
                threading.Thread(target=self._ask, args=(c, model, headers, deadline, answers), daemon=True).start()
                asked, in_flight = asked + 1, in_flight + 1
            if not in_flight:
                break
            try:
                proof = answers.get(timeout=max(0.001, deadline.left_s()))
            except queue.Empty:
                why = why or "no answer within 5 s"
                break
            in_flight -= 1
            if proof.server in wanted:
                proven.setdefault(proof.server, proof.at)
            else:
                why = proof.why or f"{proof.server} answered in its place"
            if asked >= len(wanted):
                hoped = open_now
        return proven, why

    def _ask(self, c: CellId, model: str, headers: Mapping[str, str], deadline: Deadline, answers: queue.SimpleQueue[_Proof]) -> None:
        answers.put(_prove((self._host, self._port), f"/{c}", headers, model, deadline))


class EndpointProber:
    """Asks every replica of a cell in a pool for a completion of one token at its own address, for routers that let nobody choose a side.

    Args:
        endpoints: "address:port" of each replica by cell and arm.
        sources: source pool per cell; any other pool is the target; models: as CompletionProber.
    """

    def __init__(
        self,
        endpoints: Callable[[CellId, Arm], tuple[str, ...]],
        *,
        sources: Mapping[CellId, PoolId],
        models: Mapping[CellId, str] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._sources = dict(sources)
        self._models = dict(models or {})

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        """Ask all replicas at once, at most 5 s, and return what answered.

        Raises:
            TrafficNotApplied: traffic.unknown_cell.
        """
        if not is_id(c) or c not in self._sources:
            raise TrafficNotApplied("traffic.unknown_cell", f"no source pool of cell {c[:70]!r} is known.")
        began, deadline = time.monotonic(), Deadline(PROBE_LIMIT_S)
        places = self._endpoints(c, "baseline" if self._sources[c] == pool else "canary")
        headers = {"content-type": "application/json"}
        with ThreadPoolExecutor(max_workers=min(max(1, len(places)), _MAX_ASKED)) as workers:
            proofs = workers.map(lambda place: _prove(_split_place(place), "", headers, self._models.get(c, ""), deadline), places)
            found = dict(zip(places, proofs, strict=True))
        failed = {place: proof.why for place, proof in found.items() if proof.why}
        oldest = min((proof.at for proof in found.values() if not proof.why), default=began)
        why = next(iter(failed.values()), "") if failed else f"cell {c} has no endpoint there in the fleet file"
        detail = (f"no completion from {', '.join(sorted(failed))} ({why})" if failed else why) if failed or not places else ""
        ready = len(places) - len(failed)
        return Readiness(pool=pool, cell=c, ready=ready, total=len(places), age_s=time.monotonic() - oldest, detail=detail)


def _split_place(place: str) -> tuple[str, int]:
    host, _, port = place.rpartition(":")
    return host.strip("[]"), int(port)


def _prove(place: tuple[str, int], prefix: str, headers: Mapping[str, str], model: str, deadline: Deadline) -> _Proof:
    """Ask for a completion as `_complete` does, and be done by the deadline though an answer that trickles never is."""
    try:
        return within(deadline, lambda: _complete(place, prefix, headers, model, deadline), f"completions at {place[0]}:{place[1]}{prefix}")
    except TimeoutError as late:
        return _Proof(server="", why=str(late), at=time.monotonic())


def _complete(place: tuple[str, int], prefix: str, headers: Mapping[str, str], model: str, deadline: Deadline) -> _Proof:
    """Ask for a completion of one token; `server` is the replica that a router names, `why` what was wrong."""
    at = time.monotonic()
    try:
        name = model or _listed_model(place, prefix, headers, deadline)
        body = {"prompt": "ok", "max_tokens": 1, "temperature": 0, **({"model": name} if name else {})}
        status, server, answer = _call(place, "POST", f"{prefix}/v1/completions", headers, json.dumps(body), deadline)
        complete = status == 200 and isinstance(answer, dict) and bool(answer.get("choices"))
        return _Proof(server=server if complete else "", why="" if complete else f"status {status}", at=at)
    except (OSError, http.client.HTTPException, ValueError) as failed:
        return _Proof(server="", why=type(failed).__name__, at=at)


def _listed(place: tuple[str, int], prefix: str, headers: Mapping[str, str], deadline: Deadline) -> str:
    """Return the model's name as `_listed_model` finds it, "" where it does not within a share of the time; then each try asks again."""
    with suppress(OSError, http.client.HTTPException, ValueError):
        share = Deadline(min(_LIST_SHARE_S, deadline.left_s()))
        return within(share, lambda: _listed_model(place, prefix, headers, share), f"models at {place[0]}:{place[1]}{prefix}")
    return ""


def _listed_model(place: tuple[str, int], prefix: str, headers: Mapping[str, str], deadline: Deadline) -> str:
    _, _, answer = _call(place, "GET", f"{prefix}/v1/models", headers, None, deadline)
    listed = answer.get("data") if isinstance(answer, dict) else None
    names = [m.get("id") for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    return next((n for n in names if isinstance(n, str) and n), "")


def _call(
    place: tuple[str, int], method: str, path: str, headers: Mapping[str, str], body: str | None, deadline: Deadline
) -> tuple[int, str, object]:
    link = http.client.HTTPConnection(*place, timeout=max(0.05, deadline.left_s()))
    try:
        link.request(method, path, body=body, headers=dict(headers))
        answer = link.getresponse()
        text = answer.read(_ANSWER_MAX)
        return answer.status, answer.getheader(SERVER_HEADER) or "", json.loads(text) if answer.status == 200 else None
    finally:
        link.close()
