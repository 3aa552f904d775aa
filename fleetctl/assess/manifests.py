"""Assess, pure layer: files that list packages, of Python, conda and other languages, into requirements. Never I/O, nothing is resolved."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fleetctl.assess.installs import installed_by
from fleetctl.assess.requirements import Requirement, never_on_linux, normalised, specified
from fleetctl.assess.setup_file import IMPLIES, listed_packages
from fleetctl.assess.toml_extras import extras_of, own_name, take_optional

MOST_PLACED = 2000
"""Requirements of a TOML file whose line is looked for; the rest is given line 1."""
MOST_MISSED = 100
"""Names of a lock file that are not in its text as they are (JSON may spell letters as numbers), after which no line is looked for."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}\Z")
_LISTS = re.compile(r"req|constraint|(?:^|[-_.])dep(?:s|endenc)|packages")
_TOMLS = frozenset({"pyproject.toml", "pipfile", "pixi.toml", "hatch.toml", "uv.toml", "rye.toml", "pdm.toml", "environment.toml"})
_LOCKS = frozenset({"poetry.lock", "uv.lock", "pdm.lock", "pylock.toml", "pipfile.lock"})
_APT_LISTS = frozenset({"apt.txt", "aptfile", "apt-packages.txt", "apt_packages.txt", "packages-apt.txt"})
_CODE = frozenset({"setup.py", "conanfile.py"})
_OTHERS = frozenset(
    {"cargo.toml", "project.toml", "go.mod", "pom.xml", "package.json", "vcpkg.json", "build.gradle", "build.gradle.kts", "conanfile.txt"}
)
_CONDA = re.compile(r"^(?:channels|dependencies|requirements|prefix):", re.MULTILINE)
_PIN = re.compile(r"==|>=|~=|@ ?(?:git\+|https?:)|://")
_PLAIN = re.compile(r"(?:[A-Za-z0-9][\w.-]*(?:\[[\w, -]*\])?\s*(?:[=~<>!]=?=?\s*[\w.*+!]+\s*,?\s*)*|\S*://\S+|-\S.*)(?:\s*[;#].*)?\Z")


def is_requirement_file(path: str) -> bool:
    """Tell whether a file of this name lists packages."""
    lower = path.lower()
    name = lower.rpartition("/")[2]
    return (
        name in _TOMLS | _LOCKS | _CODE | _OTHERS
        or name in {"setup.cfg", "tox.ini", "metadata", "pkg-info", "pixi.lock", "conda-lock.yml", "status", ".gitmodules", *_APT_LISTS}
        or (
            name.endswith((".txt", ".in", ".pip"))
            and (_LISTS.search(name) is not None or "/requirements/" in f"/{lower}")
            and name != "cmakelists.txt"
        )
        or (name.endswith((".yml", ".yaml")) and _is_environment(name))
        or name.endswith((".csproj", ".lock.txt"))
        or "/status.d/" in lower
    )


def _is_environment(name: str) -> bool:
    return (
        name.startswith(("environment", "conda", "meta.", "recipe."))
        or "environment" in name
        or re.search(r"(?:^|[-_.])env(?:[-_.])", name) is not None
    )


def looks_like_requirements(text: str) -> bool:
    """Tell whether a text whose name does not say so lists packages: every line has that shape, and one pins a version or a place."""
    if len(text) > 200_000 or not _PIN.search(text):
        return False
    lines = [line.strip()[:300] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return bool(lines) and all(_PLAIN.match(line) for line in lines)


def looks_like_an_environment(text: str) -> bool:
    """Tell whether a YAML text is a conda environment: it has the top keys of one."""
    return len(_CONDA.findall(text)) >= 2


def requirements(path: str, text: str) -> list[Requirement]:
    """Return the packages that a file names, by its name's kind.

    Raises:
        ValueError: it claims to be TOML or JSON and is not.
    """
    name = path.lower().rpartition("/")[2]
    if name in {"metadata", "pkg-info"}:
        return list(_metadata(path, text))
    if "conda-meta/" in path and name.endswith(".json"):
        of_conda = re.search(r"\"name\"\s*:\s*\"([\w.-]{1,100})\"", text)
        return [Requirement(normalised(of_conda.group(1)), "", path, 1)] if of_conda else []
    if name == "status" or "/status.d/" in path:
        return list(_dpkg(path, text))
    if name in _LOCKS:
        return list(_lock(path, text, _json(text) if name == "pipfile.lock" else _toml(text)))
    if name in _OTHERS or name.endswith(".csproj"):
        return list(_other(name, path, text))
    if name in _TOMLS:
        return list(_listed(path, text, _toml(text), ""))
    if name in _CODE:
        named = ((one, (one.text, "") if one.text.startswith(IMPLIES) else specified(one.text)) for one in listed_packages(text))
        return [Requirement(*found, path, one.line, normalised(one.extra)) for one, found in named if found]
    if name == ".gitmodules":
        return list(repositories(path, text))
    if name in _APT_LISTS:
        return [Requirement(f"deb:{line.strip().lower()}", "", path, n) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if name in {"setup.cfg", "tox.ini"}:
        return list(_settings(path, text))
    if name.endswith((".txt", ".in", ".pip")) and name != "cmakelists.txt":
        return list(_lines(path, _without_extras(name, text)))
    if name.endswith((".yml", ".yaml", ".lock")) and (
        _is_environment(name) or name.endswith(("lock", "lock.yml")) or looks_like_an_environment(text)
    ):
        return [*_conda(path, text), *installed_by(path, text)]
    listed = _under_keys(path, text) if name.endswith((".yml", ".yaml")) else ()
    return [*listed, *installed_by(path, text), *repositories(path, text)]


_INCLUDES = re.compile(r"^[ \t]*(?:-r|-c|--requirement|--constraint)[ \t=]+[\"']?([^\s\"'#]{1,300})", re.MULTILINE)


def included_by(text: str) -> list[tuple[str, int]]:
    """Return the files that a requirement file includes, with their lines."""
    return [(m.group(1), text.count("\n", 0, m.start()) + 1) for m in _INCLUDES.finditer(text) if "://" not in m.group(1)]


_REPOSITORY = re.compile(r"(?:https?://|git@|ssh://(?:git@)?|\bgh:)(?:github\.com[/:]|gitlab\.com[/:])?([\w.-]{1,100})/([\w.-]{1,100})")


def repositories(path: str, text: str) -> Iterator[Requirement]:
    """Yield the repositories that a build, a script or a list of submodules fetches; whole-line comments do not count."""
    for number, line in enumerate(text.splitlines(), start=1):
        if "/" in line and _FETCHES.search(line[:2000]) and not line.lstrip().startswith(("#", "//")):
            for match in _REPOSITORY.finditer(line[:2000]):
                yield Requirement(f"git:{match.group(1).lower()}/{match.group(2).lower().removesuffix('.git')}", "", path, number)


_FETCHES = re.compile(r"github\.com|gitlab\.com|\bgh:")
_KEY = re.compile(
    r"([ \t]*)(?:-[ \t]+)?[\"']?(?:requirements|python_packages|packages|pip|pip_packages|pip_requirements|python_requirements|dependencies"
    r"|system_packages|extra_pip_requirements|additional_dependencies|install)[\"']?[ \t]*:[ \t]*(\[[^\]\n]{1,4000}\])?[ \t]*(?:#.*)?\Z"
)


def _under_keys(path: str, text: str) -> Iterator[Requirement]:
    """Yield the items of the lists in a YAML file whose key says that they are packages."""
    indent = -1
    for number, line in enumerate(text.splitlines(), start=1):
        key = _KEY.match(line[:4000])
        items: list[str] = []
        if key:
            indent = len(key.group(1))
            items = key.group(2)[1:-1].split(",") if key.group(2) else []
        elif indent >= 0 and line.strip():
            depth = len(line) - len(line.lstrip())
            if line.lstrip().startswith("- ") and depth >= indent:
                items = [line.lstrip()[2:].partition(" #")[0]]
            elif depth <= indent:
                indent = -1
        for item in items:
            found = specified(item)
            if found:
                yield Requirement(*found, path, number)


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
        line = re.sub(r"(?:^|\s)#.*", "", line.strip()[:2000]).strip()
        edit = re.match(r"(?:-e|--editable)[=\s]\s*", line)
        if edit:
            line = line[edit.end() :]
        elif not line or line.startswith(("-", "[")):
            continue
        found = specified(line)
        if found:
            yield Requirement(*found, path, number)


def _without_extras(name: str, text: str) -> list[str]:
    lines = text.splitlines()
    if name != "requires.txt":
        return lines
    end = next((i for i, line in enumerate(lines) if line.startswith("[") and not line.startswith("[:")), len(lines))
    return lines[:end]


def _settings(path: str, text: str) -> Iterator[Requirement]:
    section = key = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("["):
            section, key = line.strip("[] \t").lower(), ""
        named = re.match(r"([A-Za-z_][\w-]{0,60})[ \t]*[=:][ \t]*(.{0,2000})", line)
        if named:
            key, line = named.group(1).lower(), named.group(2)
        if key in {"install_requires", "setup_requires", "tests_require", "deps", "requires"} or section == "options.extras_require":
            if never_on_linux(line.partition(";")[2]):
                continue
            for item in line.split(";")[0].split(","):
                found = specified(item) if item.strip() and not item.lstrip().startswith(("#", "-")) else None
                if found:
                    extra = normalised(key) if section == "options.extras_require" else ""
                    yield Requirement(*found, path, number, extra)


_ITEM = re.compile(
    r"[ \t]*-[ \t]+(?:(?:conda|pypi|url|name)[ \t]*:[ \t]*)?[\"']?((?:[\w./-]{1,100}::)?)([^\s\"'#][^\"'#\n]{0,500}(?:#egg=[\w.-]+)?)"
)
_NO_PACKAGES = frozenset({"channels", "channel_sources", "metadata", "variables", "platforms"})
"""Top keys of a conda file whose lists are no packages. A channel may be called nvidia or pytorch."""
_NAMED = re.compile(r"[ \t]+(?:name|url)[ \t]*:[ \t]*[\"']?([^\s\"'#]{1,500})")
_FLOW = re.compile(r"[ \t]*(?:-[ \t]+)?(?:dependencies|pip|run|host|build|requirements)[ \t]*:[ \t]*\[([^\]\n]{1,4000})\]")


_TOP = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:")


def _conda(path: str, text: str) -> Iterator[Requirement]:
    top = ""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line[:2000]
        key = _TOP.match(line)
        top = key.group(1) if key else top
        if top in _NO_PACKAGES:
            continue
        flow = _FLOW.match(line)
        if flow:
            items = [i.strip().strip("\"'") for i in flow.group(1).split(",")]
        else:
            item, named = _ITEM.match(line), _NAMED.match(line)
            items = [item.group(2)] if item else [named.group(1)] if named else []
        for one in items:
            one = one.rpartition("::")[2]
            if one.rstrip().endswith(":"):
                continue
            found = specified(one)
            if found:
                yield Requirement(*found, path, number)


_NEEDED = re.compile(r"dependenc|(?:^|[-_])requires$|^deps$")
_OF_ONE = frozenset(
    [
        "version",
        "git",
        "url",
        "path",
        "extras",
        "source",
        "optional",
        "markers",
        "index",
        "features",
        "workspace",
        "channel",
        "build",
        "develop",
        "ref",
        "editable",
        "default-features",
        "branch",
        "tag",
        "rev",
        "file",
        "package",
    ]
)


def _listed(path: str, text: str, data: dict[str, Any], prefix: str) -> Iterator[Requirement]:
    """Yield the requirements of a TOML file, wherever its tools put them: every table or list whose name says so."""
    place = _Place(text)
    optional = list(take_optional(data))
    for item, extra in [*((i, "") for i in _walk(data, 0)), *((i, e) for key, value, e in optional for i in _collect({key: value}, 0))]:
        found = specified(item)
        if found:
            name = prefix + found[0] if prefix and not found[0].startswith("git:") else found[0]
            yield Requirement(name, found[1], path, place.of(item.partition("==")[0].partition(" @ ")[0]), normalised(extra))
    for extra, item in extras_of(data):
        own = re.match(r"([\w.-]+)\[([\w, .-]+)\]", item)
        if own and normalised(own.group(1)) == normalised(own_name(data)):
            yield from (Requirement(f"{IMPLIES}{normalised(e.strip())}", "", path, 1, normalised(extra)) for e in own.group(2).split(","))
            continue
        found = specified(item)
        if found:
            yield Requirement(*found, path, place.of(item.partition("==")[0].partition(" @ ")[0]), normalised(extra))


class _Place:
    """Line of an item, for the first of many."""

    def __init__(self, text: str) -> None:
        self._text, self._asked = text, 0

    def of(self, item: str) -> int:
        self._asked += 1
        at = self._text.find(item) if self._asked <= MOST_PLACED else -1
        return self._text.count("\n", 0, at) + 1 if at >= 0 else 1


def _walk(table: dict[str, Any], depth: int) -> Iterator[str]:
    for key, value in table.items():
        lower = key.lower()
        if lower == "optional-dependencies" and depth == 1:
            continue  # extras of a project: they are read one by one
        if _NEEDED.search(lower) or (depth == 0 and lower in {"packages", "dev-packages"}):
            yield from _collect(value, 0)
        elif lower == "sources" and isinstance(value, dict):
            yield from (f"git+{v['git']}" for v in value.values() if isinstance(v, dict) and isinstance(v.get("git"), str))
        elif lower == "system-requirements" and isinstance(value, dict) and "cuda" in value:
            yield "cuda-version"
        elif isinstance(value, dict) and depth < 12:
            yield from _walk(value, depth + 1)


def _collect(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, list):
        yield from (x for x in value if isinstance(x, str))
    elif isinstance(value, dict) and depth < 6:
        for key, inner in value.items():
            if isinstance(inner, str):
                yield f"{key}=={inner}" if inner[:1].isdigit() else key
            elif isinstance(inner, dict) and (not inner or _OF_ONE & inner.keys()):
                yield from _one(key, inner)
            else:
                yield from _collect(inner, depth + 1)


def _one(key: str, inner: dict[str, Any]) -> Iterator[str]:
    if never_on_linux(str(inner.get("markers", ""))):
        return
    yield str(inner["package"]) if isinstance(inner.get("package"), str) else key
    if isinstance(inner.get("git"), str):
        yield f"git+{inner['git']}"
    features = inner.get("features")
    if isinstance(features, list) and any(re.match(r"cuda|cudnn|tensorrt|nvml|nvrtc|nccl", str(f)) for f in features):
        yield f"cuda-feature-of-{key}"


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
    head = text[:200_000].partition("\n\n")[0]
    name = re.search(r"^Name:[ \t]*([A-Za-z0-9._-]{1,100})[ \t]*$", head, re.MULTILINE)
    version = re.search(r"^Version:[ \t]*(\S{1,60})", head, re.MULTILINE)
    if name:
        yield Requirement(normalised(name.group(1)), version.group(1) if version else "", path, 1)
    for number, line in enumerate(head.splitlines(), start=1):
        if line.startswith("Requires-Dist:") and "extra ==" not in line.replace("  ", " "):
            found = specified(line[14:])
            if found:
                yield Requirement(*found, f"{path}#requires", number)


def _dpkg(path: str, text: str) -> Iterator[Requirement]:
    for match in re.finditer(r"^Package: ([\w.+-]{1,100})$", text, re.MULTILINE):
        yield Requirement(f"deb:{match.group(1).lower()}", "", path, text.count("\n", 0, match.start()) + 1)


_GO = re.compile(r"^[ \t]*(?:require[ \t]+)?([\w.-]{1,100}\.[a-z]{2,10}/[\w./-]{1,200})[ \t]+v\d", re.MULTILINE)
_POM = re.compile(r"<groupId>([\w.-]{1,100})</groupId>\s{0,50}<artifactId>([\w.-]{1,100})</artifactId>")
_GRADLE = re.compile(r"[\"']([\w.-]{1,100}):([\w.-]{1,100})(?::[^\"'\n]{0,60})?[\"']")
_NUGET = re.compile(r"<PackageReference[^>\n]{0,200}?Include=\"([\w.-]{1,100})\"")


def _other(name: str, path: str, text: str) -> Iterator[Requirement]:
    if name in {"cargo.toml", "project.toml"}:
        data = _toml(text)
        if name == "cargo.toml":
            default = data.get("features", {}).get("default") if isinstance(data.get("features"), dict) else None
            if isinstance(default, list) and any(re.match(r"cuda|tensorrt", str(f)) for f in default):
                yield Requirement("crate:cuda-default-feature", "", path, 1)
        yield from _listed(path, text, data, "crate:" if name == "cargo.toml" else "julia:")
        return
    if name in {"package.json", "vcpkg.json"}:
        yield from _npm(path, text, "npm:" if name == "package.json" else "vcpkg:")
        return
    shapes: list[tuple[str, re.Pattern[str], Callable[[str], str]]] = [
        ("go", _GO, str.lower), ("maven", _POM, normalised), ("maven", _GRADLE, normalised), ("nuget", _NUGET, normalised),
    ]  # fmt: skip
    for kind, shape, spell in shapes:
        for match in shape.finditer(text):
            yield Requirement(f"{kind}:{spell('-'.join(match.groups()))}", "", path, text.count("\n", 0, match.start()) + 1)
    if name == "conanfile.txt":
        yield from _lines(path, (line.partition("/")[0] for line in text.splitlines()))


def _npm(path: str, text: str, prefix: str) -> Iterator[Requirement]:
    data = _json(text)
    place = _Place(text)
    for key, value in data.items() if isinstance(data, dict) else ():
        if "ependencies" in key:
            names = (
                value
                if isinstance(value, dict)
                else [x.get("name") if isinstance(x, dict) else x for x in value]
                if isinstance(value, list)
                else []
            )
            for item in names:
                yield Requirement(f"{prefix}{str(item)[:100].lower()}", "", path, place.of(str(item)))
