"""Assess, pure layer: a file for CUDA beside one that does the same for ROCm, told by their names. Never I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CUDA = re.compile(r"(?<![a-z])(?:cuda|nvidia|cu1|gpu)[\d.]*(?![a-z])")
_ROCM = re.compile(r"(?<![a-z])(?:rocm|amd(?!64)|hip|mi300x?)[\d.]*(?![a-z])")
_PLAIN = re.compile(r"(?:^|[/.-])(?:dockerfile|containerfile)|(?:^|/)(?:docker-)?compose[\w.-]*\.ya?ml\Z|(?:^|/)values[\w.-]*\.ya?ml\Z")
"""Files that are for CUDA where their twin says that it is for ROCm, such as Dockerfile beside Dockerfile.rocm."""


def names_cuda(path: str) -> bool:
    """Tell whether a path's name may be that of a file for CUDA with a twin for ROCm."""
    lower = path.lower().replace("!", "/")
    return not _ROCM.search(lower) and (_CUDA.search(lower) is not None or _PLAIN.search(lower) is not None)


class Twins:
    """All files for ROCm of a tree.

    Args:
        files: names of all that was read.
    """

    def __init__(self, files: Iterable[str]) -> None:
        lower = (f.lower().replace("!", "/") for f in files)
        self._keys = {_key(f, _ROCM) for f in lower if _ROCM.search(f)}

    def has(self, path: str) -> bool:
        """Tell whether the same file, with ROCm's name in the place of CUDA's, is there too."""
        return names_cuda(path) and _key(path.lower().replace("!", "/"), _CUDA) in self._keys


def _key(path: str, words: re.Pattern[str]) -> str:
    """Return a path without the words of a platform and what joins them: both twins have the same."""
    parts = [re.sub(r"[-_.]+", ".", words.sub("", part)).strip(".") for part in path.split("/")]
    return "/".join(p for p in parts if p)
