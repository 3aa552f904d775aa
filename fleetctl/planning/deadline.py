"""Plan, pure layer: how many cells a wave would need so that everything is over by a deadline. Never I/O.

Larger waves begin the later cells sooner; soaks overlap as it is. Stages, freeze windows and the steps' own time stay as they are, so
there may be no such number.
"""

from __future__ import annotations

from collections.abc import Callable


def least_wave_cells(late: Callable[[int], bool], now: int, most: int) -> int:
    """Return the least number of cells a wave above `now` with which nothing is late, 0 where even `most` is not enough.

    Args:
        late: tells whether anything is late with so many; it is taken to turn once from late to not.
    """
    if most <= now or late(most):
        return 0
    low, high = now, min(most, max(2 * now, now + 1))
    while late(high):
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if late(middle):
            low = middle
        else:
            high = middle
    return high
