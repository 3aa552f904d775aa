"""Provision: every argument of azurerm in our HCL is one that azurerm 5.2 has; what it requires is given. Static, no Terraform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.hcl_blocks import Block, read_file, read_folder
from tests.doubles.azurerm_facts import block_of, facts

ROOT = Path(__file__).resolve().parents[2] / "terraform"
FOLDERS = sorted(p.parent for kind in ("modules", "stacks") for p in (ROOT / kind).glob("*/versions.tf"))
META = {"count", "for_each", "depends_on", "provider"}
META_BLOCKS = {"lifecycle", "provisioner", "connection"}


def mistakes(block: Block, known: dict[str, Any], where: str) -> Iterator[str]:
    """Yield what the provider would refuse in a block."""
    attributes, nested = known.get("attributes", {}), known.get("block_types", {})
    for name in block.arguments:
        if name not in META and name not in attributes:
            yield f"{where}: no argument {name}"
        elif name in attributes and not (attributes[name].get("optional") or attributes[name].get("required")):
            yield f"{where}: {name} cannot be set"
    for name, a in attributes.items():
        if a.get("required") and name not in block.arguments:
            yield f"{where}: {name} is required"
    given = list(block.inner())
    for name, inner in given:
        if name in META_BLOCKS:
            continue
        if name not in nested:
            yield f"{where}: no block {name}"
        else:
            yield from mistakes(inner, nested[name]["block"], f"{where}.{name}")
    present = {name for name, _ in given}
    for name, n in nested.items():
        if n.get("min_items") and name not in present:
            yield f"{where}: block {name} is required"


def azure_mistakes(blocks: list[Block]) -> list[str]:
    """Return every mistake of the azurerm resources, data sources and provider settings in these blocks."""
    found: list[str] = []
    for block in blocks:
        if block.kind in {"resource", "data"} and block.labels[0].startswith("azurerm_"):
            known = block_of(block.kind, block.labels[0])
            where = ".".join(block.labels)
            found += [f"{where}: azurerm has no such type in the facts"] if known is None else mistakes(block, known, where)
        if block.kind == "provider" and block.labels == ("azurerm",):
            found += mistakes(block, facts()["provider_config"]["block"], "provider.azurerm")
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_every_azurerm_argument_is_one_of_the_provider(folder: Path) -> None:
    blocks = read_folder(folder)
    assert blocks
    assert azure_mistakes(blocks) == []


@pytest.mark.parametrize("example", sorted(ROOT.glob("modules/*/examples/*/main.tf")), ids=lambda p: f"{p.parts[-4]}-{p.parts[-2]}")
def test_every_example_gives_its_module_what_it_has(example: Path) -> None:
    blocks = read_file(example)
    known = {b.labels[0]: b for b in read_folder(example.parents[2]) if b.kind == "variable"}
    used = [b for b in blocks if b.kind == "module"]
    assert used
    for block in used:
        assert set(block.arguments) - {"source"} <= set(known)
        assert {n for n, b in known.items() if "default" not in b.arguments} <= set(block.arguments)


def test_the_check_finds_a_misspelling_a_computed_one_and_a_missing_one(tmp_path: Path) -> None:
    inner = '  name = "x"\n  locaton = "y"\n  mac_address = "z"\n\n  ip_configuration {\n    nam = 1\n  }\n'
    text = f'resource "azurerm_network_interface" "x" {{\n{inner}}}\n'
    (tmp_path / "main.tf").write_text(text)
    found = azure_mistakes(read_folder(tmp_path))
    assert any("no argument locaton" in m for m in found)
    assert any("mac_address cannot be set" in m for m in found)
    assert any("location is required" in m for m in found)
    assert any("ip_configuration: no argument nam" in m for m in found)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_versions_have_an_upper_bound(folder: Path) -> None:
    blocks = read_file(folder / "versions.tf")
    block = next(b for b in blocks if b.kind == "terraform")
    if folder.name != "lab":
        assert "<" in block.arguments["required_version"]
    for inner in block.blocks:
        assert all("<" in value and ">=" in value for value in inner.arguments.values())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_variables_and_outputs_are_described_and_machines_are_guarded(folder: Path) -> None:
    blocks = read_folder(folder)
    for block in blocks:
        if block.kind in {"variable", "output"}:
            assert block.arguments.get("description"), block.labels
        if block.kind == "variable":
            assert block.arguments.get("type"), block.labels
        if block.kind == "resource" and block.labels[0] in {"azurerm_linux_virtual_machine", "aws_instance", "aws_autoscaling_group"}:
            lifecycle = next(b for b in block.blocks if b.kind == "lifecycle")
            assert lifecycle.arguments["prevent_destroy"] == "true"


def test_readmes_are_made_from_the_code() -> None:
    from docs.terraform_readme import folders, page

    for folder in folders():
        assert (folder / "README.md").read_text() == page(folder), f"{folder.name}: run python docs/terraform_readme.py"
