"""Assess, pure layer: says of one identifier whether it is a CUDA name and whether HIP has it. Never I/O.

A name that the table does not hold is not thereby fine: tables lag. What looks like a CUDA name and is neither in the table nor defined
by the tree itself is uncovered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from fleetctl.domain.portability import USABLE, ApiName

Coverage = Literal["covered", "unsupported", "uncovered", "other"]

LOOKS_LIKE_CUDA = re.compile(
    r"(?:cuda[A-Z]\w*"
    r"|cu(?:blas|dnn|fft|rand|sparse|solver|tensor|File)[A-Z]\w*"
    r"|cu(?:Init|Ctx|Device|Driver|Mem|Module|Launch|Stream|Event|Graph|Func|Link|Library|Kernel|Occupancy|Pointer|Tex|Surf|Array|"
    r"Mipmapped|Ipc|Import|External|Destroy|Signal|Wait|Profiler|Get|Param|Logs|Checkpoint|Coredump|Flush)(?:[A-Z]\w*)?"
    r"|CU(?:context|device|module|function|stream|event|graph|array|mem|link|jit|launch|kernel|library|tex|surf|result)\w*"
    r"|nccl[A-Z]\w*|nvrtc[A-Z]\w*|nvshmem\w+"
    r"|__(?:shfl|ballot|any|all|match|reduce|active)\w*_sync|__syncwarp|__nanosleep|__grid_constant__|__nv_[a-z]\w*"
    r"|CUDART_CB|CUDA_CB|CUT_THREADPROC|atomic\w+_system)\Z"
)
"""Shapes of the names that CUDA's runtime, driver, libraries and device code define; all-capital macros are left to the projects' own."""

_GENERIC_LIBS = frozenset({"device", "cub", "include"})


def coverage(name: str, names: Mapping[str, ApiName]) -> Coverage:
    """Classify one identifier by the table: "covered", "unsupported" (a row without a HIP name), "uncovered" (no row), "other"."""
    row = names.get(name)
    if row is not None:
        return "covered" if row.status in USABLE else "unsupported"
    return "uncovered" if LOOKS_LIKE_CUDA.match(name) else "other"


def status_of(name: str, names: Mapping[str, ApiName]) -> str:
    """Return the status that the table gives, "" for a name that it does not hold."""
    row = names.get(name)
    return "" if row is None else row.status


def is_generic(name: str, names: Mapping[str, ApiName]) -> bool:
    """Tell whether a name of the table is also a word that other code uses (`umin`, `saturate`): then it counts in device code only."""
    row = names.get(name)
    return row is not None and row.lib in _GENERIC_LIBS and not name.startswith("__nv")
