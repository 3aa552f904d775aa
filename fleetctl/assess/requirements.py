"""Assess, pure layer: requirement, lock and environment files into packages with versions, and what becomes of each. Never I/O.

Nothing is resolved: what a file pins is what counts.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fleetctl.domain.portability import PackageRule

MOST_PLACED = 2000
"""Requirements of a TOML file whose line is looked for; the rest is given line 1."""
MOST_MISSED = 100
"""Names of a lock file that are not in its text as they are (JSON may spell letters as numbers), after which no line is looked for."""
LONGEST_LINE = 4000


class Requirement(NamedTuple):
    """One package as a file names it; `version` is "" where it is not pinned."""

    name: str
    version: str
    path: str
    line: int


_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100})\s*(?:\[[^\]]{0,200}\])?\s*(?:(===?|~=|>=|<=|!=|<|>|@|=)\s*([^\s;,#'\"]{1,80}))?")
_PIP_INSTALL = re.compile(r"\bpip3?\s+install\s+([^\n&|;]*)|\buv\s+(?:pip\s+install|add)\s+([^\n&|;]*)")
_QUOTED = re.compile(r"""["']([A-Za-z0-9][\w.-]{0,100}(?:\[[^\]]{0,100}\])?(?:\s*[=~<>!]=?\s*[\w.*+!-]{1,60})?[^"']{0,80})["']""")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")


def normalised(name: str) -> str:
    """Return a package's name as its registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_requirement_file(path: str) -> bool:
    """Tell whether a file of this name lists packages."""
    name = path.rpartition("/")[2].lower()
    return (
        (name.endswith((".txt", ".in")) and ("requirement" in name or "constraint" in name or "/requirements/" in f"/{path.lower()}"))
        or name
        in {"pyproject.toml", "poetry.lock", "uv.lock", "pdm.lock", "pylock.toml", "pipfile", "pipfile.lock", "setup.py", "setup.cfg"}
        or (name.startswith(("environment", "conda")) and name.endswith((".yml", ".yaml")))
    )


def requirements(path: str, text: str) -> list[Requirement]:
    """Return the packages that a file names; a file that cannot be parsed yields what its lines show.

    Raises:
        ValueError: it claims to be TOML or JSON and is not.
    """
    name = path.rpartition("/")[2].lower()
    if name == "metadata":
        return list(_metadata(path, text))
    if name == "pyproject.toml" or name == "pipfile":
        return list(_pyproject(path, text, _toml(text)))
    if name.endswith(".lock") or name == "pylock.toml":
        return list(_lock(path, text, _json(text) if name == "pipfile.lock" else _toml(text)))
    if name.endswith((".yml", ".yaml")):
        return list(_lines(path, (line.lstrip(" -") if line.lstrip().startswith("-") else "" for line in text.splitlines())))
    if name == "setup.py":
        return [r for i, line in enumerate(text.splitlines(), 1) for r in _quoted(path, line, i)]
    if "dockerfile" in name or "containerfile" in name or name.endswith((".sh", ".bash")):
        return list(_installs(path, text))
    return list(_lines(path, text.splitlines()))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as e:
        raise ValueError(str(e)[:200]) from None


def _lines(path: str, lines: Iterable[str]) -> Iterator[Requirement]:
    for number, line in enumerate(lines, start=1):
        line = line.strip()[:2000]
        if not line or line[0] in "#-/." or "://" in line.partition("#")[0].partition("@")[0]:
            continue
        match = _LINE.match(line)
        if match:
            yield Requirement(normalised(match.group(1)), _version(match.group(2), match.group(3)), path, number)


def _version(sign: str | None, version: str | None) -> str:
    return version or "" if sign in {"==", "===", "~=", "="} else ""


def _quoted(path: str, line: str, number: int) -> Iterator[Requirement]:
    for match in _QUOTED.finditer(line[:2000]):
        inner = _LINE.match(match.group(1))
        if inner:
            yield Requirement(normalised(inner.group(1)), _version(inner.group(2), inner.group(3)), path, number)


def _installs(path: str, text: str) -> Iterator[Requirement]:
    joined = "\n".join(line[:LONGEST_LINE] for line in text.replace("\\\n", "  ").split("\n"))
    line, counted = 1, 0
    for match in _PIP_INSTALL.finditer(joined):
        line += joined.count("\n", counted, match.start())
        counted = match.start()
        skip = False
        for word in (match.group(1) or match.group(2) or "")[:4000].split():
            word = word.strip("\"'")
            if skip or word.startswith("-"):
                skip = word in {"-r", "-c", "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-t", "--target"}
                continue
            found = _LINE.match(word)
            if found and "://" not in word and "/" not in word:
                yield Requirement(normalised(found.group(1)), _version(found.group(2), found.group(3)), path, line)


def _pyproject(path: str, text: str, data: dict[str, Any]) -> Iterator[Requirement]:
    for number, item in enumerate(_strings(data)):
        match = _LINE.match(item[:300])
        if match:
            at = text.find(item) if number < MOST_PLACED else -1
            line = text.count("\n", 0, at) + 1 if at >= 0 else 1
            yield Requirement(normalised(match.group(1)), _version(match.group(2), match.group(3)), path, line)


def _strings(data: dict[str, Any]) -> Iterator[str]:
    """Yield the requirements of a pyproject.toml or Pipfile, wherever its tools put them."""
    project = _table(data, "project")
    lists: list[Any] = [project.get("dependencies"), _table(data, "build-system").get("requires")]
    lists += list(_table(project, "optional-dependencies").values())
    lists += list(_table(data, "dependency-groups").values())
    for items in lists:
        if isinstance(items, list):
            yield from (x for x in items if isinstance(x, str))
    poetry = _table(_table(data, "tool"), "poetry")
    tables = [_table(poetry, "dependencies"), _table(poetry, "dev-dependencies"), _table(data, "packages"), _table(data, "dev-packages")]
    tables += [_table(g, "dependencies") for g in _table(poetry, "group").values() if isinstance(g, dict)]
    for table in tables:
        yield from (str(key) for key in table)


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _lock(path: str, text: str, data: Any) -> Iterator[Requirement]:
    if not isinstance(data, dict):
        raise ValueError("not a table")
    packages = data.get("package", data.get("packages"))
    entries: list[tuple[Any, Any]] = []
    if isinstance(packages, list):
        entries = [(p.get("name"), p.get("version")) for p in packages if isinstance(p, dict)]
    for group in ("default", "develop"):
        if isinstance(data.get(group), dict):
            entries += [(k, v.get("version") if isinstance(v, dict) else "") for k, v in data[group].items()]
    at, line, missed = 0, 1, 0
    for name, version in entries:
        if not isinstance(name, str) or not _NAME.match(name):
            continue
        found = text.find(name, at) if missed < MOST_MISSED else -1
        if found >= 0:
            line += text.count("\n", at, found)
            at = found
        else:
            missed += 1
        yield Requirement(normalised(name), str(version or "").lstrip("=")[:60], path, line)


def _metadata(path: str, text: str) -> Iterator[Requirement]:
    head = text[:20_000]
    name = re.search(r"^Name:[ \t]*([A-Za-z0-9._-]{1,100})[ \t]*$", head, re.MULTILINE)
    version = re.search(r"^Version:[ \t]*(\S{1,60})", head, re.MULTILINE)
    if name:
        yield Requirement(normalised(name.group(1)), version.group(1) if version else "", path, 1)


@dataclass(frozen=True, slots=True)
class PackageTable:
    """Package rules by name; exact names before endings."""

    exact: dict[str, PackageRule]
    prefixes: tuple[tuple[str, PackageRule], ...]
    imports: dict[str, PackageRule]

    @classmethod
    def of(cls, rules: Iterable[PackageRule]) -> PackageTable:
        """Make the look-up; longer prefixes first."""
        exact: dict[str, PackageRule] = {}
        prefixes: list[tuple[str, PackageRule]] = []
        imports: dict[str, PackageRule] = {}
        for rule in rules:
            for name in rule.names:
                if name.endswith("*"):
                    prefixes.append((name[:-1], rule))
                else:
                    exact.setdefault(name, rule)
            for module in rule.imports:
                imports[module] = rule
        return cls(exact, tuple(sorted(prefixes, key=lambda p: -len(p[0]))), imports)

    def rule_for(self, name: str) -> PackageRule | None:
        """Return the rule of a normalised name."""
        found = self.exact.get(name)
        if found is None:
            found = next((rule for prefix, rule in self.prefixes if name.startswith(prefix)), None)
        return found


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
