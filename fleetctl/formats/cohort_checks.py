"""Inventory, formats layer: what of cohorts cannot be: whose requests they take, and twice the same. Never decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fleetctl.domain.fleet import WORK_ROUTERS
from fleetctl.formats.fleet_schema import CellShape, CohortShape, RouterShape, WorkloadShape

Finding = tuple[tuple[str | int, ...], str]


COOKIES = ("haproxy", "envoy")
"""Kinds of routers that tell a cookie's value exactly. An ALB compares the whole Cookie header, by wildcards; the
Gateway API knows no cookie."""


def check_cohorts(
    cells: Mapping[str, CellShape], workloads: Mapping[str, WorkloadShape], routers: Mapping[str, RouterShape]
) -> Iterator[Finding]:
    """Yield every mistake between cohorts and the cells whose requests they take."""
    taken: dict[tuple[str, str, str], str] = {}
    for name, cell in cells.items():
        if cell.cohort is None:
            continue
        here = ("cells", name, "cohort")
        yield from _key(here, cell.cohort, cell.router.name, routers)
        whole = cells.get(cell.cohort.of)
        if whole is None:
            yield (*here, "of"), f"there is no cell {cell.cohort.of!r}"
            continue
        yield from _of(here, name, cell, whole, workloads)
        for i, value in enumerate(cell.cohort.values):
            key = (cell.cohort.of, cell.cohort.cookie or (cell.cohort.header or "").lower(), value)
            if key in taken:
                yield (*here, "values", i), f"{value!r} is in cohort {taken[key]!r} already"
            taken.setdefault(key, name)


def _key(here: tuple[str | int, ...], c: CohortShape, router: str, routers: Mapping[str, RouterShape]) -> Iterator[Finding]:
    """Yield what tells its requests where that is not one thing, or none that this kind of router can tell."""
    kind = routers[router].kind if router in routers else ""
    if (c.header is None) == (c.cookie is None):
        yield here, "name a header or a cookie, one of the two"
    elif kind in WORK_ROUTERS:
        yield here, f"router {router!r} ({kind}) gives out jobs, which have no {'header' if c.header else 'cookie'}: use a queue of its own"
    elif c.cookie is not None and kind and kind not in COOKIES:
        yield (*here, "cookie"), f"router {router!r} ({kind}) cannot tell a cookie's value: let your gateway set a header, and name it"


def _of(
    here: tuple[str | int, ...], name: str, cell: CellShape, whole: CellShape, workloads: Mapping[str, WorkloadShape]
) -> Iterator[Finding]:
    of = cell.cohort.of if cell.cohort is not None else ""
    if whole.cohort is not None or of == name:
        yield (*here, "of"), f"{of!r} is a cohort itself: name the cell that all requests come to"
    if whole.region != cell.region:
        yield (*here, "of"), f"{of!r} is in {whole.region}, this one in {cell.region}"
    if whole.router.name != cell.router.name:
        yield (*here, "of"), f"{of!r} is behind router {whole.router.name!r}, this one behind {cell.router.name!r}"
    one, other = workloads.get(cell.workload), workloads.get(whole.workload)
    if one is not None and other is not None and one.model.name != other.model.name:
        yield (*here, "of"), f"{of!r} serves {other.model.name!r}, this one {one.model.name!r}: a request would get another model"
    if cell.workload == whole.workload:
        yield ("cells", name, "workload"), "a cohort is a workload of its own, with its own traffic and replicas"
    if one is not None and other is not None and whole.workload in one.after:
        yield ("workloads", cell.workload, "after"), f"a cohort goes first: {whole.workload!r} waits for it"
