"""Assess, pure layer: a file for CUDA beside one that does the same for ROCm, told by their names. Never I/O.

The one for CUDA is not needed where its twin stands alone. It is needed where the twin is built on an image that nobody knows, where
the twin only lies over the plain file (compose, Helm's values) and leaves a setting as it is, and where another file takes it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

_CUDA = re.compile(r"(?<![a-z])(?:cuda|nvidia|cu1|gpu)[\d.]*(?![a-z])")
_ROCM = re.compile(r"(?<![a-z])(?:rocm|amd(?!64)|hip|mi300x?)[\d.]*(?![a-z])")
_CONTAINER = re.compile(r"(?:^|[/.-])(?:dockerfile|containerfile)")
_OVERLAY = re.compile(r"(?:^|/)(?:docker-)?compose[\w.-]*\.ya?ml\Z|(?:^|/)values[\w.-]*\.ya?ml\Z")
"""Files of settings that are laid over one another: what the one for ROCm does not set stays as the plain one has it."""
_FROM = re.compile(r"^[ \t]*from[ \t]+(?:--\S+[ \t]+)*(\S{1,300})(?:[ \t]+as[ \t]+(\S{1,100}))?", re.MULTILINE)
_ARG = re.compile(r"^[ \t]*arg[ \t]+(\w{1,100})=[\"']?([^\s\"']{1,300})", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{?(\w{1,100})[^}\s/:]{0,100}\}?")
_PLAIN_BASE = re.compile(
    r"(?:^|/)(?:ubuntu|debian|python|fedora|rockylinux|almalinux|centos|ubi\d*[\w-]*|(?:mini|micro)?conda3|scratch)(?:[:@]|\Z)|\$"
)
_NAME = re.compile(r"[\w.+-][\w./+-]{0,300}")
_COPIES = re.compile(r"^[ \t]*(?:copy|add)[ \t]+(.{1,2000})", re.MULTILINE)
_KEY = re.compile(r"([ \t]*(?:-[ ]+)?)[\"']?([\w./-]{1,100})[\"']?[ \t]*:(?![ \t]*\{)")
_COMMENTS = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_IN_CI = re.compile(r"(?:^|/)(?:\.[\w-]+|ci|tests?)/")
"""Folders whose scripts try every platform."""
LONGEST_LIST = 200_000
"""Characters of a script or a list that are looked at for the names of files that it takes."""
MOST_NAMES, MOST_FOLDERS = 20_000, 50
"""Names of files and of copied folders that are kept per tree; over that every file for CUDA counts as taken."""
MOST_SETTINGS, DEEPEST = 200_000, 40
"""Lines of settings that are kept per tree, and keys one in another; over that a setting counts as not set by the twin."""


def _lower(path: str) -> str:
    return path.lower().replace("!", "/")


def names_cuda(path: str) -> bool:
    """Tell whether a path's name may be that of a file for CUDA with a twin for ROCm."""
    lower = _lower(path)
    return not _ROCM.search(lower) and any(shape.search(lower) for shape in (_CUDA, _CONTAINER, _OVERLAY))


class Twins:
    """The files of a tree that are for CUDA and have a twin for ROCm that can do without them, in the making."""

    def __init__(self) -> None:
        self._unknown_base: set[str] = set()
        self._settings: dict[str, dict[int, str]] = {}
        self._keys: dict[str, frozenset[str]] = {}
        self._taken: dict[str, set[str]] = {}
        self._copied: dict[str, set[str]] = {}
        self._names = self._lines = 0
        self._of_key: dict[str, list[str]] = {}
        self._used: set[str] = set()

    def read(self, path: str, text: str, scopes: set[str]) -> None:
        """Take what a file says of others.

        Args:
            scopes: kinds of text that it holds; the files that a container's, a script or a list of packages names are files it needs.
        """
        lower = _lower(path)
        if _OVERLAY.search(lower):
            self._settings[lower] = _settings(text) if self._lines < MOST_SETTINGS else {}
            self._lines += len(self._settings[lower])
            self._keys[lower] = frozenset(self._settings[lower].values())
        is_list = bool(scopes & {"docker", "requirement"}) and not lower.endswith((".lock", ".json"))
        if not (is_list or lower.endswith((".sh", ".bash")) or "makefile" in _last(lower)):
            return
        said = _COMMENTS.sub("", text[:LONGEST_LIST].lower())
        if _CONTAINER.search(lower) and _ROCM.search(lower) and not _knows_its_base(said):
            self._unknown_base.add(lower)
        if _CUDA.search(said) and not _IN_CI.search(lower):
            self._keep(lower, said)

    def _keep(self, lower: str, said: str) -> None:
        """Keep the names of files for CUDA in a text that names not their twins as well."""
        names = set(_NAME.findall(said))
        chosen = {_key(_last(n), _ROCM) for n in names if _ROCM.search(n)}
        copied = {n for line in _COPIES.findall(said) for n in line.split()}
        for kept, found in ((self._taken, {n for n in names if "." in n}), (self._copied, copied)):
            found = {n.strip("./") for n in found if _CUDA.search(n) and not _ROCM.search(n) and _key(_last(n), _CUDA) not in chosen}
            if found and self._names <= MOST_NAMES:
                kept.setdefault(lower, set()).update(found)
                self._names += len(found)

    def close(self, files: Iterable[str]) -> None:
        """Take the names of all that was read; only then can be asked what has a twin.

        A file that a needed one takes is needed too, and what that takes in turn.
        """
        lowers = sorted({_lower(f) for f in files})
        for lower in lowers:
            if _ROCM.search(lower):
                self._of_key.setdefault(_key(lower, _ROCM), []).append(lower)
        twin = {f for f in lowers if names_cuda(f) and _key(f, _CUDA) in self._of_key}
        open_ones = {f for f in twin if not _CONTAINER.search(f) and not _OVERLAY.search(f)}
        if self._names > MOST_NAMES:
            self._used = open_ones
            return
        waiting = [f for f in {*self._taken, *self._copied} if f not in open_ones and not (f in twin and self.has(f))]
        ends = sorted(f[::-1] for f in open_ones)
        seen: set[str] = set()
        folders: set[str] = set()
        while waiting:
            by = waiting.pop()
            names, inside = self._taken.get(by, set()) - seen, self._copied.get(by, set()) - folders
            seen |= names
            folders |= inside
            taken = {f for name in names for f in _ending(ends, name)}
            if inside and len(folders) > MOST_FOLDERS:
                taken |= open_ones
            else:
                taken |= {f for name in inside for f in open_ones if f"/{name}/" in f"/{f}"}
            waiting += taken - self._used
            self._used |= taken

    def has(self, path: str, line: int = 0) -> bool:
        """Tell whether the same file, with ROCm's name in the place of CUDA's, is there too and can do without this one.

        Args:
            line: of a file of settings, the one that is asked about.
        """
        lower = _lower(path)
        twins = self._of_key.get(_key(lower, _CUDA), ()) if names_cuda(path) else ()
        if _CONTAINER.search(lower):
            return any(t not in self._unknown_base for t in twins)
        if _OVERLAY.search(lower):
            key = self._settings.get(lower, {}).get(line, "")
            return key != "" and any(key in self._keys.get(t, ()) for t in twins)
        return bool(twins) and lower not in self._used


def _ending(ends: list[str], name: str) -> Iterator[str]:
    """Yield the paths that end with a name, of all paths written backwards and sorted."""
    back = name[::-1]
    for at in range(bisect_left(ends, back), len(ends)):
        found = ends[at]
        if not found.startswith(back):
            return
        if found == back or found[len(back)] == "/":
            yield found[::-1]


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _key(path: str, words: re.Pattern[str]) -> str:
    """Return a path without the words of a platform and what joins them: both twins have the same."""
    parts = [re.sub(r"[-_.]+", ".", words.sub("", part)).strip(".") for part in path.split("/")]
    return "/".join(p for p in parts if p)


def _settings(text: str) -> dict[int, str]:
    """Return the keys that lead to each line of a YAML text, told by their indent; a platform's words in them do not count."""
    above: list[tuple[int, str]] = []
    found: dict[int, str] = {}
    for number, line in enumerate(text.split("\n")[:MOST_SETTINGS], 1):
        key = _KEY.match(line[:2000])
        if key:
            depth = len(key.group(1))
            while above and above[-1][0] >= depth:
                above.pop()
            above.append((depth, _key(_key(key.group(2).lower(), _CUDA), _ROCM)))
            if len(above) <= DEEPEST:
                found[number] = "/".join(name for _, name in above)
    return found


def _knows_its_base(text: str) -> bool:
    """Tell whether a container file for ROCm is built on ROCm's images, a plain system, or what is told when it is built.

    Args:
        text: in lower case.
    """
    values = dict(_ARG.findall(text))
    stages: set[str] = set()
    for image, name in _FROM.findall(text):
        base = _VARIABLE.sub(lambda m: values.get(m.group(1), m.group()), image)
        if base not in stages and (_ROCM.search(base) or _PLAIN_BASE.search(base)):
            return True
        stages.add(name)
    return False
