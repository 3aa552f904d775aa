"""Assess, pure layer: packages that files ask for or sources import, over a whole tree: needed, optional, replaced, or the tree's own.

Never I/O, nothing is resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from fleetctl.assess.collected import Collected, Place
from fleetctl.assess.requirements import PackageTable, Requirement, holds, normalised, repository_name, too_old
from fleetctl.assess.setup_file import IMPLIES
from fleetctl.assess.twins import Twins, names_cuda
from fleetctl.domain.portability import PackageRule

CUDA_ONLY_MOVES = {"substitute": "rebuild", "rebuild": "rebuild", "stay": "stay", "hipify": "hipify", "native": "native", "drop": "native"}
MOST_USES = 1000
"""Places of one package or module that are kept, with a guard and without: a guarded one counts for nothing beside one that is not."""
_STATUS = {
    "native": "has a ROCm build",
    "native-source": "builds from source for ROCm",
    "replace": "has a replacement",
    "fork": "has an AMD fork",
    "cuda-only": "is CUDA-only",
}
_EXTRAS = re.compile(
    r"(?<![\w.])\.{1,2}/?\[([\w, .-]{1,200})\]"
    r"|(?<![\w-])(?:--extras?|-E|--with|--features|-F)[= ][\"']?([\w.-]{1,100}(?:[ ,][\w.-]{1,100}){0,20})"
    r"|(--all-(?:extras|features|groups))"
)
"""Extras, groups and features of the tree's own project that something installs."""
_INSTALLERS = re.compile(r"\b(?:pip|poetry|uv|pdm|hatch|pixi|cargo|maturin)\b")
_OF_NAME = re.compile(r"(?<![\w.])([A-Za-z0-9][\w.-]{0,100})\[([\w, .-]{1,200})\]")
_OWN_NAME = re.compile(r"^[ \t]*(?:name[ \t]*=[ \t]*|setup\([ \t]*name[ \t]*=[ \t]*)[\"']?([A-Za-z0-9][\w.-]{0,100})", re.MULTILINE)
_NAMING = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "cargo.toml"})
MOST_NAMED = 5000


class _Use(NamedTuple):
    rule: PackageRule
    module: str
    place: Place
    guarded: bool


class Packages:
    """What is asked for, in the making."""

    def __init__(self, table: PackageTable, found: Collected) -> None:
        self._table, self._found = table, found
        self._required: dict[str, Requirement] = {}
        self._named_at: dict[str, dict[Place, None]] = {}
        self._maybe: dict[tuple[str, str, str], Requirement] = {}
        self._imported: dict[tuple[str, str], dict[bool, list[_Use]]] = {}
        self._extras: set[str] = set()
        self._implied: dict[str, set[str]] = {}
        self._extras_of: dict[str, set[str]] = {}
        self._own_names: set[str] = set()
        self.names: set[str] = set()

    def rule_for(self, name: str) -> PackageRule | None:
        """Return the rule of a package's name."""
        return self._table.rule_for(name)

    def require(self, one: Requirement) -> None:
        """Take one package that a file names; what an extra or a file for CUDA asks for is judged at the end."""
        if one.name.startswith(IMPLIES):
            self._implied.setdefault(one.extra, set()).add(one.name.removeprefix(IMPLIES))
            return
        self.names.add(repository_name(one.name))
        if self._table.rule_for(one.name) is None:
            return
        if one.extra or names_cuda(one.path):
            self._maybe.setdefault((one.name, one.path, one.extra), one)
        else:
            self._hard(one)

    def _hard(self, one: Requirement) -> None:
        """Keep what is needed in any case: the first place that pins a version, and all the places."""
        kept = self._required.get(one.name)
        if kept is None or (one.version and not kept.version):
            self._required[one.name] = one
        at = self._named_at.setdefault(one.name, {})
        if len(at) < MOST_USES:
            at[Place(one.path, one.line)] = None

    def imports(self, path: str, modules: Iterable[tuple[str, int, bool]]) -> None:
        """Take what a source imports: module, line, and whether it goes on without."""
        for module, line, guarded in modules:
            rule = self._table.rule_of_module(module)
            if rule is not None:
                uses = self._imported.setdefault((rule.id, module.partition(".")[0]), {}).setdefault(guarded, [])
                if len(uses) < MOST_USES:
                    uses.append(_Use(rule, module, Place(path, line), guarded))

    def asks(self, path: str, text: str) -> None:
        """Take the extras that a file's commands install, and the project's own name where the file gives it."""
        name = path.lower().replace("!", "/").rpartition("/")[2]
        if name in _NAMING:
            self._own_names |= {normalised(n) for n in _OWN_NAME.findall(text)}
            return
        for asked in _EXTRAS.finditer(text):
            start = max(text.rfind("\n", 0, asked.start()) + 1, asked.start() - 400)
            if asked.group(2) and not _INSTALLERS.search(text, start, asked.start()):
                continue
            said = "*" if asked.group(3) else asked.group(1) or asked.group(2)
            self._extras |= {normalised(e) for e in re.split(r"[ ,]+", said) if e}
        for named in _OF_NAME.finditer(text):
            if len(self._extras_of) < MOST_NAMED:
                self._extras_of.setdefault(normalised(named.group(1)), set()).update(
                    normalised(e) for e in re.split(r"[ ,]+", named.group(2))
                )

    def finish(self, files: set[str], twins: Twins) -> None:
        """State all packages.

        Args:
            files: names of all that was read, in lower case.
        """
        asked = self._asked()
        optional: dict[str, Requirement] = {}
        for one in self._maybe.values():
            if (one.extra and "*" not in asked and one.extra not in asked) or twins.has(one.path, one.line):
                optional.setdefault(one.name, one)
            else:
                self._hard(one)
        own = {name.replace("!", "/") for name in files if name.endswith(".py")}
        uses = self._uses(own)
        done: set[str] = set()
        for name, one in [*sorted(self._required.items()), *sorted((n, o) for n, o in optional.items() if n not in self._required)]:
            rule = self._table.rule_for(name)
            if rule is not None and rule.status == "native" and "+rocm" in one.version:
                continue
            if rule is None or (name.startswith("nvidia-") and "-cu1" in name) or not holds(rule, one.version):
                continue
            if name.startswith("deb:") and rule.id in done:
                continue  # a distribution cuts one library into dozens of packages
            is_asked = name in self._required
            places = dict.fromkeys([Place(one.path, one.line), *(self._named_at[name] if is_asked else ())])
            if is_asked and rule.id not in done:
                places |= dict.fromkeys(u.place for many in uses if many[0].rule.id == rule.id and not many[0].guarded for u in many)
                done.add(rule.id)
            self._state(rule, name, one.version, list(places), optional=not is_asked)
        for many in uses:
            if many[0].rule.id not in done:
                name = many[0].module.partition(".*")[0]
                self._state(many[0].rule, name, "", [u.place for u in many], guarded=many[0].guarded)
        self._required, self._named_at, self._maybe, self._imported = {}, {}, {}, {}

    def _asked(self) -> set[str]:
        """Return every extra of the tree's own that something installs, and those that these ask for."""
        asked = set(self._extras)
        for name in self._own_names:
            asked |= self._extras_of.get(name, set())
        waiting = list(asked)
        while waiting:
            for more in self._implied.get(waiting.pop(), set()) - asked:
                asked.add(more)
                waiting.append(more)
        return asked

    def _uses(self, own: set[str]) -> list[list[_Use]]:
        """Return the imports of each module that is not the tree's own: those without a guard, else those with one."""
        found: list[list[_Use]] = []
        for by_guard in self._imported.values():
            kept = (
                sorted((u for u in by_guard.get(guarded, ()) if not _is_own(u, own)), key=lambda u: u.place) for guarded in (False, True)
            )
            many = next((m for m in kept if m), None)
            if many is not None:
                found.append(many)
        return found

    def _state(
        self, rule: PackageRule, name: str, version: str, places: list[Place], *, guarded: bool = False, optional: bool = False
    ) -> None:
        replaced = next((r for r in rule.replaced_by if any(_matches(r, n) for n in self.names)), "")
        text = f"{name}{'==' + version if version else ''} {_STATUS.get(rule.status, 'is ' + rule.status)}: {rule.action}"
        if replaced:
            text += f" ({replaced} is there)"
        least = "native" if replaced else CUDA_ONLY_MOVES.get(rule.move, "rebuild")
        if too_old(rule, version):
            text += f"; it needs {rule.since} or newer"
        self._found.package(rule, places, text, name, least=least, is_replaced=bool(replaced), guarded=guarded, optional=optional)


def _is_own(use: _Use, own: set[str]) -> bool:
    """Tell whether a module lies in the tree, where Python would find it from the file that imports it."""
    folder = use.place.path.lower().replace("!", "/")
    while folder:
        folder = folder.rpartition("/")[0]
        for inner in ("", "src/", "lib/", "python/"):
            base = f"{folder}/{inner}".lstrip("/") + use.module.partition(".")[0].lower()
            if f"{base}.py" in own or f"{base}/__init__.py" in own:
                return True
    return False


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
