"""Settings: flags before environment before the workspace's file before the user's before default; mistakes with lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.errors import ConfigInvalid
from fleetctl.formats.settings import find_fleet_file, load_settings, user_file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder that is not the workspace."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def test_precedence(tmp_path: Path, home: Path) -> None:
    environment = {"HOME": str(home), "USER": "ada"}
    flags: dict[str, str | None] = {"workspace": str(tmp_path), "output": None}
    plain = load_settings(flags, environment)
    assert (plain.output, plain.origin["output"], plain.actor) == ("table", "default", "ada")
    assert plain.store == tmp_path / ".fleetctl/store.db"
    (home / ".config/fleetctl").mkdir(parents=True)
    (home / ".config/fleetctl/config.toml").write_text('output = "wide"\nactor = "ada.l"\n')
    assert load_settings(flags, environment).output == "wide"
    (tmp_path / "fleetctl.toml").write_text('output = "yaml"\nfleet = "inventory/a/fleet.yaml"\n')
    found = load_settings(flags, environment)
    assert (found.output, found.actor, found.fleet) == ("yaml", "ada.l", tmp_path / "inventory/a/fleet.yaml")
    assert found.origin["output"] == str(tmp_path / "fleetctl.toml")
    environment["FLEETCTL_OUTPUT"] = "json"
    assert load_settings(flags, environment).origin["output"] == "environment"
    assert load_settings({**flags, "output": "name"}, environment).output == "name"


def test_all_mistakes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "fleetctl.toml").write_text('# mine\noutptu = "json"\ncolor = 5\noutput = "xml"\n\n[fleet]\nname = "x"\n')
    with pytest.raises(ConfigInvalid) as caught:
        load_settings({"workspace": str(tmp_path)}, {"FLEETCTL_COLOR": "blue"})
    file = tmp_path / "fleetctl.toml"
    assert caught.value.code == "config.settings"
    assert caught.value.details == (
        f"{file}:2: unknown key 'outptu' (did you mean 'output'?)",
        f"{file}:3: color must be text in quotes",
        f"{file}:4: output must be table, wide, json, yaml, name, not 'xml'",
        f"{file}:6: fleet must be text in quotes",
        "FLEETCTL_COLOR: must be auto, always, never, not 'blue'",
    )


def test_broken_toml_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "fleetctl.toml").write_text('output = "json"\nfleet = \n')
    with pytest.raises(ConfigInvalid) as caught:
        load_settings({"workspace": str(tmp_path)}, {})
    assert caught.value.details[0].startswith(f"{tmp_path / 'fleetctl.toml'}:2: not TOML")


def test_a_workspace_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="is not a directory"):
        load_settings({}, {"FLEETCTL_WORKSPACE": str(tmp_path / "none")})


def test_user_file_follows_xdg() -> None:
    assert user_file({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}) == Path("/x/fleetctl/config.toml")
    assert user_file({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}) == Path("/h/.config/fleetctl/config.toml")
    assert user_file({}) is None


def test_the_only_fleet_file_is_found(tmp_path: Path) -> None:
    settings = load_settings({"workspace": str(tmp_path)}, {})
    with pytest.raises(ConfigInvalid) as caught:
        find_fleet_file(settings)
    assert caught.value.code == "config.missing"
    for name in ("b", "a"):
        (tmp_path / "inventory" / name).mkdir(parents=True)
        (tmp_path / "inventory" / name / "fleet.yaml").write_text("name: x\n")
        if name == "b":
            assert find_fleet_file(settings) == tmp_path / "inventory/b/fleet.yaml"
    with pytest.raises(ConfigInvalid) as caught:
        find_fleet_file(settings)
    assert caught.value.code == "config.ambiguous"
    assert 'fleet = "inventory/a/fleet.yaml"' in caught.value.hint
