"""Assess, pure layer: packages that the commands of a Dockerfile, a script or a pipeline install. Never I/O, never a shell.

Words that are only printed (echo, printf, a here-document to the screen) and comments are no commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from fleetctl.assess.requirements import Requirement, specified

LONGEST_LINE = 8000
MOST_RUN, BEFORE = 20_000, 300
"""Modules of a text that may be run by name, of which more are not looked at, and characters in which the program stands before."""
_INSTALLER = re.compile(
    r"(?<![\w.-])(?:(?P<python>pip[\d.]*\s+(?:install|download|wheel)|uv\s+(?:pip\s+install|add|tool\s+install)|poetry\s+add|pdm\s+add"
    r"|pipenv\s+install|rye\s+add|pixi\s+add|pipx\s+(?:install|run)|uvx)"
    r"|(?P<conda>(?:conda|mamba|micromamba)\s+(?:install|create|env\s+create)|\$\{?\w*(?:CONDA|MAMBA)\w*\}?\s+install)"
    r"|(?P<deb>(?:apt-get|apt|aptitude|yum|dnf|microdnf|tdnf|zypper)\s+(?:-\S+\s+)*(?:install|in)|apk\s+(?:-\S+\s+)*add|dpkg\s+(?:-\S+\s+)*-i)"
    r"|(?P<crate>cargo\s+(?:add|install))|(?P<go>go\s+(?:get|install))|(?P<npm>(?:npm|pnpm)\s+(?:install|i|add)|yarn\s+add))(?=\s|$)\s*"
)
_WITH = re.compile(r"\buv\s+run\b[^\n&|;]{0,400}?--with[= ]([^\s&|;]+)")
_TELLS = re.compile(r"(?:^|[\s;({'\"@:-])(?:echo|printf|print|log\w*|message|warn\w*|info|die|error|usage|fail|say|note)\b[^&|;]*\Z")
_TAKES_VALUE = frozenset(
    [
        "-r",
        "--requirement",
        "-c",
        "--constraint",
        "--channel",
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "-t",
        "--target",
        "--trusted-host",
        "--python",
        "-n",
        "--name",
        "-p",
        "--prefix",
        "--platform",
        "--python-version",
        "--cache-dir",
        "--root",
        "--index-strategy",
        "--torch-backend",
        "--group",
        "--index",
        "-o",
        "--option",
        "--repo",
        "--features",
        "-F",
        "--version",
        "--file",
    ]
)
_ENDS = re.compile(r"&&|\|\||[;|\n]")
_SET = re.compile(
    r"^[ \t]*(?:(?:ARG|ENV|export|local|readonly|declare|-)[ \t]+)?([A-Za-z_]\w{0,60})[ \t]*[:=][ \t]*"
    r"(\"[^\"\n]{0,2000}\"|'[^'\n]{0,2000}'|[^\s\n]{0,500})",
    re.MULTILINE,
)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w{0,60})(?::?-[^}\n]{0,200})?\}?")
_HERE = re.compile(r"<<-?[ \t]*[\"']?(\w{1,40})[\"']?")
_ARRAY = re.compile(r"\[[ \t]*(\"[^\[\]\n]{0,4000}\")[ \t]*\]")
_FLOW = re.compile(r"\[[ \t]*(?:sudo[ \t]*,[ \t]*)?((?:pip[\d.]*|uv|conda|mamba|apt-get|apt|dnf|yum)[ \t]*,[^\[\]\n]{1,4000})\]")
_WHEEL = re.compile(r"(?<![\w.+-])[\w.]{1,100}-\d[\w.+!]{0,60}(?:-[\w.]{1,100}){3,4}\.whl\b")
_PYPI = re.compile(r"\bpypi[\"']?\s*+[:=]?\s*+\{?\s*+[\"']?package[\"']?\s*+[:=]\s*+[\"']?([\w.-][^\s\"'}]{0,200})")
_TASK = re.compile(r"^([ \t]*(?:-[ \t]+)?)(?:ansible\.builtin\.)?(pip|apt|dnf|yum|package)[ \t]*:[ \t]*([^\n]{0,2000})$", re.MULTILINE)
_TASK_NAME = re.compile(r"\bname[ \t]*[:=][ \t]*")
MOST_LISTS = 200
LONGEST_TASK = 40
"""Lines of an Ansible task that are looked at for the packages that it installs."""
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#(?!egg=)[^\n]*")


_TOLD = re.compile(
    r"(?P<before>^[ \t]*@?|(?:[;&|{(]|\b(?:RUN|then|do|else)\b)[ \t]*)"
    r"(?:echo|printf|die|usage|warn\w*|error|fatal|fail|abort|log_\w+|info|msg)[ \t]+"
    r"(?:\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|[^\n;&|>\"'])*+(?:>&2)?(?![^\n;&]*[|>])",
    re.MULTILINE,
)


def unsaid(text: str) -> str:
    """Return a script without what it only prints to the screen; what goes into a file or a pipe stays."""
    return _TOLD.sub(lambda m: m.group("before"), text)


def commands(text: str) -> str:
    """Return a text's commands: continued lines joined, comments and here-documents blank; line breaks are kept."""
    lines: list[str] = []
    until = ""
    for line in text.split("\n"):
        if until:
            lines.append("")
            if line.strip() == until:
                until = ""
            continue
        here = _HERE.search(line)
        if here and re.match(r"[ \t]*cat[ \t]", line) and ">" not in line.replace("<<", "").replace(">&2", ""):
            until = here.group(1)
        lines.append("" if line.lstrip().startswith("#") else line[:LONGEST_LINE])
    out: list[str] = []
    kept: list[str] = []
    for line in lines:
        stripped = line.rstrip()
        if kept and not stripped:
            kept.append("")
            continue
        if stripped.endswith("\\"):
            kept.append(stripped[:-1])
            continue
        kept.append(_COMMENT.sub("", line))
        out.append(" ".join(kept))
        out.extend([""] * (len(kept) - 1))
        kept = []
    out.append(" ".join(kept))
    return "\n".join(out)


_MODULE = re.compile(r"(?<![\w-])-m[\"',]*[ \t]*(?:\n[ \t]*-[ \t]+)?[\"']?([A-Za-z_][\w.]{0,100})|\bload_ext[ \t]+([A-Za-z_][\w.]{0,100})")
_PYTHON = re.compile(r"\b(?:python[\d.]*|torchrun|uv[ \t]+run|accelerate[ \t]+launch|deepspeed)(?=[\"',\s])(?!.*\s[\"']?-m\b)", re.DOTALL)
_APART = re.compile(r"[;&|]|\n(?![ \t]*-[ \t])")


def modules_run_by(text: str) -> list[tuple[str, int, bool]]:
    """Return the Python modules that commands run or load by name (`python -m`, `%load_ext`), each with its line; none has a guard."""
    if "-m" not in text and "load_ext" not in text:
        return []
    ready = unsaid(commands(text))
    found: list[tuple[str, int, bool]] = []
    for match, line in _placed(_MODULE, ready):
        before = _APART.split(ready[max(0, match.start() - BEFORE) : match.start()])[-1]
        if match.group(2) or _PYTHON.search(before):
            found.append((match.group(1) or match.group(2), line, False))
    return found


def installed_by(path: str, text: str) -> Iterator[Requirement]:
    """Yield the packages that a text's commands install."""
    yield from _told(path, text)
    if not re.search(r"install|\badd\b|create|dpkg|uvx|go\s+get|--with|pipx|\bin\b|<<|echo|printf", text):
        return
    values = {m.group(1): m.group(2).strip("\"'") for m in _SET.finditer(text)}
    ready = _ARRAY.sub(lambda m: " ".join(p.strip().strip('"') for p in m.group(1).split(",")), unsaid(commands(text)))
    ready = _FLOW.sub(lambda m: " ".join(p.strip().strip("\"'") for p in m.group(1).split(",")), ready)
    line, counted, done = 1, 0, 0
    for match in _INSTALLER.finditer(ready):
        if match.start() < done:
            continue
        line += ready.count("\n", counted, match.start())
        counted = match.start()
        end = _ENDS.search(ready, match.end(), match.end() + LONGEST_LINE)
        done = end.start() if end else min(len(ready), match.end() + LONGEST_LINE)
        before = ready[max(0, match.start() - 2000) : match.start()]
        if _TELLS.search(before, max((m.end() for m in _ENDS.finditer(before)), default=0)):
            continue
        words = ready[match.end() : done]
        kind = match.lastgroup or ""
        for word in _packages(_VARIABLE.sub(lambda m: values.get(m.group(1), m.group()), words)):
            found = _named(kind, word)
            if found:
                yield Requirement(*found, path, line)
    yield from _written(path, text)
    for match in _WITH.finditer(ready):
        found = specified(match.group(1))
        if found:
            yield Requirement(*found, path, ready.count("\n", 0, match.start()) + 1)


def _told(path: str, text: str) -> Iterator[Requirement]:
    """Yield the packages that stand without a command: wheels that are copied, libraries of a job, tasks of Ansible."""
    for shape, word in ((_WHEEL, ".whl"), (_PYPI, "pypi")):
        for match, line in _placed(shape, text) if word in text else ():
            found = specified(match.group(match.lastindex or 0))
            before = text[max(text.rfind("\n", 0, match.start()) + 1, match.start() - LONGEST_LINE) : match.start()]
            if found and not before.lstrip().startswith(("#", "//")):
                yield Requirement(*found, path, line)
    if path.lower().endswith((".yml", ".yaml")):
        lines = text.split("\n")
        for match, line in _placed(_TASK, text):
            for said, below in _of_task(match.group(3), lines[line : line + LONGEST_TASK], len(match.group(1))):
                found = _named("python" if match.group(2) == "pip" else "deb", said)
                if found:
                    yield Requirement(*found, path, line + below)


def _placed(shape: re.Pattern[str], text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield the first matches of a pattern, each with its line."""
    line, counted = 1, 0
    for match in islice(shape.finditer(text), MOST_RUN):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        yield match, line


def _of_task(rest: str, lines: list[str], depth: int) -> Iterator[tuple[str, int]]:
    """Yield the packages of one task, each with its distance in lines: `name: x`, `name=x`, `{name: [x]}`, or a list below."""
    below = False
    for distance, line in enumerate([" " * (depth + 1) + rest, *lines]):
        if line.strip() and len(line) - len(line.lstrip()) < depth + (distance > 0 and not below):
            return
        named = _TASK_NAME.search(line[:2000])
        if named:
            said = re.split(r"[}\]]|[ \t]+\w+=|,[ \t]*\w+[ \t]*:", line[named.end() : 2000].lstrip("["), maxsplit=1)[0]
            below = not said.strip()
            yield from ((word.strip().strip("\"'"), distance) for word in said.split(","))
        elif below and line.lstrip().startswith("- "):
            yield line.lstrip()[2:].strip().strip("\"'"), distance
        elif line.strip():
            below = False


_LIST = re.compile(r"\bpip[\d.]*[ \t]+install\b[^\n;&|]{0,400}?[ \t](?:-r|--requirement)[ =]?([\w./-]{1,300})(?=[\s\"',]|\Z)")


def lists_of_odd_names(text: str) -> list[tuple[str, int]]:
    """Return the lists of packages, with their lines, that commands install and whose names do not say what they are."""
    if "-r" not in text and "--requirement" not in text:
        return []
    ready = unsaid(commands(text))
    return [
        (m.group(1), ready.count("\n", 0, m.start()) + 1)
        for m in islice(_LIST.finditer(ready), MOST_LISTS)
        if not m.group(1).startswith(("-", "/dev/", "/proc/")) and not m.group(1).endswith((".txt", ".in", ".pip", ".toml", ".lock"))
    ]


_ECHOED = re.compile(
    r"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?(?P<quote>[\"'])(.{1,500}?)(?P=quote)[ \t]*>>?[ \t]*\S*(?:req|dep|pack|\.txt|\.in\b)"
)


def _written(path: str, text: str) -> Iterator[Requirement]:
    """Yield the packages that a script writes into a list of requirements."""
    for match in _ECHOED.finditer(text):
        for word in match.group(2).replace("\\n", " ").split():
            found = specified(word)
            if found:
                yield Requirement(*found, path, text.count("\n", 0, match.start()) + 1)
    until = ""
    for number, line in enumerate(text.splitlines() if "<<" in text else (), start=1):
        if until:
            if line.strip() == until:
                until = ""
                continue
            found = specified(line.lstrip(" -")) if not line.lstrip().startswith("#") else None
            if found:
                yield Requirement(*found, path, number)
        else:
            here = _HERE.search(line[:LONGEST_LINE])
            if here and ">" in line.replace("<<", "") and re.search(r"req|dep|\.txt|\.ya?ml|\.in\b", line):
                until = here.group(1)


def _packages(words: str) -> Iterator[str]:
    skip = False
    for raw in re.findall(r"\"[^\"]*\"|'[^']*'|\S+", words):
        word = raw.strip("\"'`,()")
        if skip:
            skip = False
        elif word in {"-e", "--editable"} or not word:
            continue
        elif word.startswith("-"):
            skip = word in _TAKES_VALUE
        elif raw[0] in "\"'" and " " in word and "==" not in word and "@" not in word:
            yield from word.split()
        elif not word.startswith((">", "<", "2>")):
            yield word


def _named(kind: str, word: str) -> tuple[str, str] | None:
    if kind == "python":
        return specified(word)
    if kind == "conda":
        return specified(word.rpartition("::")[2])
    if kind == "deb":
        name = re.match(r"[a-z0-9][a-z0-9.+-]{0,100}", word.rpartition("/")[2].lower())
        return (f"deb:{name.group().removesuffix('.deb')}", "") if name else None
    plain = re.match(r"@?[A-Za-z0-9][\w./-]{0,200}", word)
    return (f"{kind}:{plain.group().lower().replace('_', '-')}", "") if plain else None
