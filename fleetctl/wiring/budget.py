"""Composition root, the SLO budget: what the fleet file's settings name, asked of a Prometheus. Never decides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.domain.fleet import Fleet
    from fleetctl.domain.ids import CellId
    from fleetctl.usecases.budget import BudgetGate

PREFIX = "slo_budget."
KNOWN = ("prometheus", "query", "least")
CALL_S = 3.0


def budget_gate(fleet: Fleet) -> BudgetGate | None:
    """Return the gate that the settings slo_budget.* ask for; None where there are none.

    Raises:
        ConfigInvalid: config.budget.
    """
    from fleetctl.errors import ConfigInvalid
    from fleetctl.usecases.budget import BudgetGate

    given = {key.removeprefix(PREFIX): value for key, value in fleet.settings.items() if key.startswith(PREFIX)}
    if not given:
        return None
    unknown = sorted(set(given) - set(KNOWN))
    missing = [key for key in KNOWN[:2] if not given.get(key)]
    least = _share(given.get("least", "0"))
    wrong = [f"slo_budget.{k} is not known" for k in unknown] + [f"slo_budget.{k} is missing" for k in missing]
    wrong += ["slo_budget.least is no share from 0 to 1"] if least is None else []
    if wrong or least is None:
        raise ConfigInvalid("config.budget", f"{'; '.join(wrong)}.", hint="See: docs/how-to/mind-the-slo-budget.md")
    query, url = given["query"], given["prometheus"]

    def left(c: CellId) -> float:
        from fleetctl.adapters.prometheus.client import PrometheusApi
        from fleetctl.errors import EvidenceUnavailable

        words = {"CELL": str(c), "WORKLOAD": str(fleet.cell(c).workload), "REGION": str(fleet.cell(c).region)}
        text = query
        for word, value in words.items():
            text = text.replace(word, value.replace("\\", "\\\\").replace('"', '\\"'))
        found = PrometheusApi(url, tries=1, timeout_s=CALL_S).query(text)
        if len(found) != 1:
            raise EvidenceUnavailable("evidence.budget", f"the query gives {len(found)} numbers, not one", hint="Run: fleetctl doctor")
        return found[0].value

    return BudgetGate(left=left, least=least)


def _share(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and 0 <= found <= 1 else None
