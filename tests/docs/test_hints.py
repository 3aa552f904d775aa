"""What errors tell people to run can be run; blocks of Python in the docs run and give what they promise."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fleetctl.adapters.routers.haproxy.config import PIN_VARIABLE, lua_text
from fleetctl.adapters.routers.haproxy.process import find_binary
from fleetctl.cli.main import cli
from fleetctl.errors import FleetctlError, ToolMissing
from fleetctl.lab.envoy import find_envoy

ROOT = Path(__file__).resolve().parents[2]
RUN = re.compile(r"(?:Run|See|Next|Look at it): fleetctl ([a-z][^.,;()]*)")
ROUTER_PAGE = ROOT / "docs/how-to/bring-your-own-router.md"


def advised() -> dict[str, list[str]]:
    """Return the commands that errors advise, with the codes that do."""
    spec = importlib.util.spec_from_file_location("docs_generate_for_hints", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    found: dict[str, list[str]] = {}
    for raised in generate.raised_errors():
        for line in RUN.findall(raised.hint):
            for command in re.split(r",? then fleetctl ", line):
                found.setdefault(command.strip(), []).append(raised.code)
    return found


def fault(line: str) -> str:
    """Say what is wrong with the words after `fleetctl`; empty where they can be run."""
    words = line.split()
    command: click.Command = cli
    context = click.Context(cli, info_name="fleetctl")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        try:
            inner = command.get_command(context, words[0])
        except FleetctlError:
            inner = None
        if inner is None:
            return f"no command {words[0]}"
        command, context = inner, click.Context(inner, info_name=words.pop(0), parent=context)
    flags = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
    unknown = [w for w in words if w.startswith("-") and w not in flags]
    takes = any(isinstance(p, click.Argument) for p in command.params)
    if unknown:
        return f"no flag {unknown[0]}"
    extra = [w for w in words if not w.startswith("-")]
    return f"takes no argument: {extra[0]}" if extra and not takes else ""


def test_every_command_that_an_error_advises_can_be_run() -> None:
    lines = advised()
    assert len(lines) >= 10
    # `release` comes with the command of that name; its permit is refused until then
    wrong = {line: (fault(line), codes) for line, codes in lines.items() if fault(line) and line != "release"}
    assert wrong == {}


def test_advice_that_cannot_be_run_is_seen() -> None:
    assert fault("brand-new") == "no command brand-new"
    assert fault("plan --show") == "no flag --show"
    assert fault("status chat-lab") == "takes no argument: chat-lab"
    assert fault("lab fault errors chat-lab --ratio") == ""


def test_the_router_page_prints_a_configuration_that_haproxy_takes(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", ROUTER_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    folder = tmp_path / "maps"
    folder.mkdir()
    placed = block.replace("/etc/haproxy/fleetctl", str(folder)).replace("/run/haproxy/fleetctl.sock", "/tmp/none.sock")
    done = subprocess.run([sys.executable, "-c", placed], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert "backend assistant-eastus2_canary" in done.stdout
    try:
        binary = find_binary()
    except ToolMissing:
        pytest.skip("haproxy is not installed (Debian: haproxy)")
    (folder / "fleetctl.lua").write_text(lua_text(), encoding="utf-8")
    (folder / "weight.map").write_text("assistant-eastus2 0\n", encoding="utf-8")
    (folder / "fence.map").write_text("assistant-eastus2 0:0:0\n", encoding="utf-8")
    (folder / "shadow.map").write_text("assistant-eastus2 0\n", encoding="utf-8")
    (tmp_path / "haproxy.cfg").write_text(done.stdout, encoding="utf-8")
    checked = subprocess.run(
        [str(binary), "-c", "-f", str(tmp_path / "haproxy.cfg")],
        capture_output=True,
        text=True,
        check=False,
        env={PIN_VARIABLE: "0123456789abcdef"},
        timeout=30,
    )
    assert (checked.returncode, checked.stderr) == (0, checked.stderr)


def test_the_envoy_page_prints_a_bootstrap_that_envoy_takes(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/envoy-router.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    placed = block.replace("/etc/envoy/fleetctl", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", placed], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == str(tmp_path / "envoy.json")
    argv = [str(find_envoy()), "--mode", "validate", "--config-path", str(tmp_path / "envoy.json")]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stderr[-2_000:]


def test_the_router_page_names_every_field_of_the_log() -> None:
    from fleetctl.adapters.routers.haproxy.config import RouterConfig, render
    from fleetctl.adapters.routers.route import CellRoute
    from fleetctl.domain.ids import CellId

    config = RouterConfig(
        cells=(CellRoute(cell=CellId("a"), model="m", baseline=("127.0.0.1:1",)),), port=1, socket=Path("/s"), map_folder=Path("/m")
    )
    fields = re.findall(r'"([a-z0-9]+)":', re.findall(r"log-format '(.*)'", render(config))[0])
    page = ROUTER_PAGE.read_text(encoding="utf-8")
    assert len(fields) >= 12
    assert [f for f in fields if f"`{f}`" not in page] == []
