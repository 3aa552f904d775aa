"""Assess, pure layer: one package as a file names it, and what becomes of each by the table of packages. Never I/O.

Nothing is resolved: what a file pins is what counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.domain.portability import PackageRule


class Requirement(NamedTuple):
    """One package as a file names it.

    `version` is "" where it is not pinned; a name of another registry than Python's has its kind before it, such as `crate:` or `deb:`,
    one that is only known by its repository is `git:owner/name`. `extra` is the optional extra that asks for it, "" where none does.
    """

    name: str
    version: str
    path: str
    line: int
    extra: str = ""


SPEC = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]{0,100})\s*(?:\[[^\]]{0,200}\])?\s*(?:\(?\s*(===?|~=|>=|<=|!=|<|>|@|=)\s*([^\s;,#'\"()]{1,80}))?"
)
_AT_URL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100})\s*(?:\[[^\]]{0,200}\])?\s*@\s*(\S{1,1000})")
_FILES = (".txt", ".in", ".toml", ".cfg", ".yml", ".yaml", ".cu", ".cuh", ".cpp", ".h", ".so", ".md")
"""Endings of files that stand where packages may: a list that another is read from, a source that is built. No package has such a name."""
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9][A-Za-z0-9._-]{0,100})")
_WHEEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._]{0,100})-(\d[A-Za-z0-9.+_!%]{0,60})-[^/]{1,200}\.whl\Z")
_CONDA = re.compile(r"([a-z0-9_][a-z0-9._-]{0,100})-(\d[A-Za-z0-9.+_!]{0,60})-[^/-]{1,100}\.(?:conda|tar\.bz2)\Z")
_SDIST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100}?)-v?(\d[A-Za-z0-9.+_!]{0,60}?)\.(?:tar\.gz|tgz|zip|tar\.bz2|tar\.xz)\Z")
_REPOSITORY = re.compile(
    r"(?:(?:git|ssh|https?|git\+\w+)://|git\+|git@|git:)(?:[^/@\s]{1,100}@)?[\w.-]{1,100}(?::\d{1,5})?[/:]([\w.-]{1,100})/([\w.-]{1,100})"
)
AMD_OWNERS = frozenset({"rocm", "amd-ecosystem", "amd", "radeonopencompute", "rocmsoftwareplatform", "amd-agi", "amdresearch"})


def normalised(name: str) -> str:
    """Return a package's name as its registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def specified(text: str) -> tuple[str, str] | None:
    """Return name and pinned version of a package as pip takes it: by name, by URL, from a repository, or as a file.

    Returns:
        None where it names no package, such as a folder or an option, or one that Linux never gets.
    """
    if ";" in text and never_on_linux(text.partition(";")[2]):
        return None
    text = text.strip().strip("\"'").strip()[:2000]
    at_url = _AT_URL.match(text)
    if at_url:
        told = _located(at_url.group(2)) if at_url.group(2).endswith(".whl") else None
        return normalised(at_url.group(1)), told[1] if told else ""
    if "://" in text or text.startswith(("git+", "git@", ".", "/", "~")) or re.search(r"\.(?:whl|tar\.gz|conda)(?:[#?]|\Z)", text):
        return _located(text)
    match = SPEC.match(text)
    if match is None or match.group(1).lower().endswith(_FILES) or text[match.end(1) :][:1] == "/":
        return None
    return normalised(match.group(1)), _pinned(match.group(2), match.group(3))


_MARKER = re.compile(r"\s*(sys_platform|platform_system|os_name)\s*(==|!=)\s*[\"']([\w ]{1,40})[\"']\s*")
_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


def never_on_linux(marker: str) -> bool:
    """Tell whether an environment marker is false on every Linux; one with inner brackets counts as true. Source: PEP 508."""
    marker = marker.partition("#")[0].strip().strip("\"'" if marker.count('"') % 2 or marker.count("'") % 2 else "")[:1000]
    if marker.startswith("(") and marker.endswith(")"):
        marker = marker[1:-1]
    return "(" not in marker and all(any(_is_false(a) for a in re.split(r"\sand\s", way)) for way in re.split(r"\sor\s", marker))


def _is_false(atom: str) -> bool:
    told = _MARKER.fullmatch(atom)
    return told is not None and (told.group(3) == _LINUX[told.group(1)]) != (told.group(2) == "==")


def _pinned(sign: str | None, version: str | None) -> str:
    return version if version and sign in {"==", "===", "~=", "="} and "$" not in version else ""


def _located(url: str) -> tuple[str, str] | None:
    egg = _EGG.search(url)
    if egg:
        return normalised(egg.group(1)), ""
    plain = re.split(r"[#?]", url, maxsplit=1)[0]
    last = plain.rstrip("/").rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    for shape in (_WHEEL, _CONDA):
        named = shape.match(last)
        if named:
            return normalised(named.group(1)), named.group(2)
    repository = _REPOSITORY.match(plain)
    is_archive = "/archive/" in plain or "/tarball/" in plain or "/zipball/" in plain
    if repository and (is_archive or not _SDIST.match(last)):
        owner, name = repository.group(1).lower(), repository.group(2).lower().removesuffix(".git")
        return f"git:{owner}/{name}", ""
    named = _SDIST.match(last)
    return (normalised(named.group(1)), named.group(2)) if named else None


def repository_name(name: str) -> str:
    """Return the last part of a `git:owner/name`, as a package would be called; any other name as it is."""
    return normalised(name.rpartition("/")[2]) if name.startswith("git:") else name


@dataclass(frozen=True, slots=True)
class PackageTable:
    """Package rules by name: exact names, then beginnings, then patterns of names that no other rule knows."""

    exact: dict[str, PackageRule]
    prefixes: tuple[tuple[str, PackageRule], ...]
    beginnings: tuple[str, ...]
    patterns: tuple[tuple[re.Pattern[str], PackageRule], ...]
    imports: dict[str, PackageRule]

    @classmethod
    def of(cls, rules: Iterable[PackageRule]) -> PackageTable:
        """Make the look-up; longer prefixes first."""
        exact: dict[str, PackageRule] = {}
        prefixes: list[tuple[str, PackageRule]] = []
        patterns: list[tuple[re.Pattern[str], PackageRule]] = []
        imports: dict[str, PackageRule] = {}
        for rule in rules:
            for name in rule.names:
                if name.startswith("~"):
                    patterns.append((re.compile(name[1:]), rule))
                elif name.endswith("*"):
                    prefixes.append((name[:-1], rule))
                else:
                    exact.setdefault(name, rule)
            for module in rule.imports:
                imports[module] = rule
        prefixes.sort(key=lambda p: -len(p[0]))
        return cls(exact, tuple(prefixes), tuple(p for p, _ in prefixes), tuple(patterns), imports)

    def rule_for(self, name: str) -> PackageRule | None:
        """Return the rule of a normalised name; a repository of AMD's own has none, any other is judged by its name too."""
        if name.startswith("git:"):
            owner = name[4:].partition("/")[0]
            if owner in AMD_OWNERS:
                return None
            return self.exact.get(name) or self._by_name(repository_name(name)) or self._by_name(name)
        return self._by_name(name)

    def _by_name(self, name: str) -> PackageRule | None:
        found = self.exact.get(name)
        if found is None and name.startswith(self.beginnings):
            found = next((rule for prefix, rule in self.prefixes if name.startswith(prefix)), None)
        if found is None and not _OF_AMD.search(name):
            found = next((rule for pattern, rule in self.patterns if pattern.search(name)), None)
        return found

    def rule_of_module(self, module: str) -> PackageRule | None:
        """Return the rule of an imported module: of its longest beginning that a rule knows."""
        while module:
            if module in self.imports:
                return self.imports[module]
            module = module.rpartition(".")[0]
        return None


_OF_AMD = re.compile(r"(?:^|[-:])(?:rocm|hip|amd)\d*(?:-|$)|-rocm\d*")


def holds(rule: PackageRule, version: str) -> bool:
    """Tell whether a rule speaks of this version; an unpinned one counts."""
    if not version:
        return True
    mine = numbers(version)
    return not (rule.until and mine > (*numbers(rule.until), 10**9))


def too_old(rule: PackageRule, version: str) -> bool:
    """Tell whether a version is older than the first one that the rule's status holds for."""
    return bool(rule.since and version) and numbers(version) < numbers(rule.since)


def numbers(version: str) -> tuple[int, ...]:
    """Return the release part of a version as numbers, for comparing."""
    release = re.match(r"[vV]?(\d+(?:\.\d+){0,5})", version)
    return tuple(int(part[:9]) for part in release.group(1).split(".")) if release else ()
