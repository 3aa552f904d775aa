"""Plan, pure layer: one linear or mixed program through HiGHS. Never knows what the columns mean; never reads or writes a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from fleetctl.planning.program import Bools, Floats, Ints

_QUIET = highspy.Highs.__bases__[0]
"""The solver without its Python callbacks: enabling those writes a banner to stdout, where results go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A program by columns; entries (row, column, value) in any order."""

    cost: Floats
    low: Floats
    high: Floats
    row_low: Floats
    row_high: Floats
    entry_row: Ints
    entry_column: Ints
    entry: Floats
    whole: Bools | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What HiGHS found; `values` None where it found nothing.

    Args:
        duals: of the rows, for a program without whole columns; bound: proven by branch and bound (or the optimum itself).
    """

    values: Floats | None
    duals: Floats
    cost: float
    bound: float
    infeasible: bool


def run(m: Model, *, seconds: float, gap: float = 0.0, start: Floats | None = None, nodes: int | None = None) -> Found:
    """Minimise.

    Args:
        seconds: limit; gap: relative, above 0 to stop early; start: a feasible point to begin from.
        nodes: of the search tree at most: a limit that a busy machine does not move.
    """
    lp = highspy.HighsLp()
    columns, rows = len(m.cost), len(m.row_low)
    order = np.lexsort((m.entry_row, m.entry_column))
    lp.num_col_, lp.num_row_ = columns, rows
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = m.cost, m.low, m.high
    lp.row_lower_, lp.row_upper_ = m.row_low, m.row_high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate(([0], np.cumsum(np.bincount(m.entry_column, minlength=columns)))).astype(np.int32)
    lp.a_matrix_.index_ = m.entry_row[order].astype(np.int32)
    lp.a_matrix_.value_ = m.entry[order]
    if m.whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(w)] for w in m.whole]
    h = _QUIET()
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "threads": 2,
        "random_seed": 7,
        "time_limit": float(seconds),
        "mip_rel_gap": gap,
        "mip_abs_gap": 1e-7,
    }
    options |= {"mip_heuristic_effort": 0.3, "mip_allow_restart": False, "mip_detect_symmetry": False}
    options |= {"mip_pool_soft_limit": 20, "mip_pool_age_limit": 1}
    if nodes is not None:
        options["mip_max_nodes"] = nodes
    for name, value in options.items():
        h.setOptionValue(name, value)
    h.passModel(lp)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = list(start)
        h.setSolution(solution)
    h.run()
    return _found(h, m.whole is not None, rows)


def _found(h: Any, mixed: bool, rows: int) -> Found:
    info, status = h.getInfo(), h.getModelStatus()
    infeasible = status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
    has = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    solution = h.getSolution()
    duals = np.asarray(solution.row_dual) if not mixed and has else np.zeros(rows)
    cost = float(info.objective_function_value) if has else np.inf
    return Found(
        values=np.asarray(solution.col_value) if has else None,
        duals=duals,
        cost=cost,
        bound=float(info.mip_dual_bound) if mixed else cost,
        infeasible=infeasible,
    )
