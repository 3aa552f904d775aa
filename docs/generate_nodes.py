"""Docs: pages about nodes, made from the version matrix and from each role's argument_specs. Never written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLES = ROOT / "playbooks" / "roles"


def matrix_page() -> str:
    """Return the page of the version matrix."""
    from fleetctl.catalog.matrix import load_matrix

    m = load_matrix()
    lines = [
        "# The version matrix",
        "",
        "<!-- Made by docs/generate.py from fleetctl/catalog/data/matrix.json. -->",
        "",
        f"Which driver, ROCm, kernel, OS, image and translation layer go together, as of {m.as_of}.",
        "What is not a row is refused before any change.",
        "`unknown` means that no source of this project gives the value: a run that needs it is refused;",
        "the `pins` of a nodes file fill it.",
        "Nothing here was guessed. A key is looked at 90 days ahead of its end.",
        "`zluda` is for RDNA only: it is refused on CDNA, such as the MI300X (gfx942).",
        "",
        "| release | OS | kernel | driver | ROCm | layers | image | digest | source, date |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in m.releases:
        kernel = f"{r.kernel_series}-{r.kernel_flavour}" if r.kernel_flavour else r.kernel_series
        layers = ", ".join(r.layers) or "none"
        row = f"| `{r.id}` | {r.os} {r.os_version} | {kernel} | {r.driver} | {r.rocm} | {layers} | {r.image} | {r.image_digest} |"
        lines.append(f"{row} {r.source}, {r.as_of} |")
    lines += [
        "",
        "## Repositories",
        "",
        "| release | repository | address | suite | components | key |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [f"| `{r.id}` | {p.name} | {p.uri} | {p.suite} | {p.components} | {p.key} |" for r in m.releases for p in r.repositories]
    lines += ["", "## Packages", "", "| release | package | version |", "| --- | --- | --- |"]
    for r in m.releases:
        for group in (r.kernel_packages, r.driver_packages, r.rocm_packages):
            lines += [f"| `{r.id}` | {name} | {version} |" for name, version in group.items()]
    lines += ["", "## Keys", "", "| key | fingerprint | end | source, date |", "| --- | --- | --- | --- |"]
    lines += [f"| {k.name} | {k.fingerprint} | {k.expires} | {k.source}, {k.as_of} |" for k in m.keys]
    lines += ["", "## Downloads", "", "| name | layer | version | SHA-256 | source, date |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {d.name} | {d.layer} | {d.version} | {d.sha256} | {d.source}, {d.as_of} |" for d in m.downloads]
    return "\n".join(lines) + "\n"


def role_page(folder: Path) -> str:
    """Return the page of one role."""
    spec: dict[str, Any] = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text("utf-8"))["argument_specs"]["main"]
    description = spec.get("description", [])
    text = description if isinstance(description, str) else " ".join(description)
    lines = [f"# Role {folder.name}", "", "<!-- Made by docs/generate.py from the role's argument_specs. -->", ""]
    lines += [
        f"{spec['short_description']}.".replace("..", "."),
        "",
        text,
        "",
        "| variable | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for name, option in spec.get("options", {}).items():
        lines += _rows(name, option)
    tasks = folder / "tasks"
    if (tasks / "absent.yml").exists():
        lines += ["", f"`{folder.name}_state: absent` undoes it."]
    steps = [
        t["name"]
        for f in ("present.yml", "main.yml", "begun.yml")
        if (tasks / f).exists()
        for t in yaml.safe_load((tasks / f).read_text("utf-8"))
    ]
    lines += ["", "## Steps", "", *(f"{n}. {s}" for n, s in enumerate(dict.fromkeys(steps), 1) if s != "Make it what is wanted")]
    return "\n".join(lines) + "\n"


def _rows(name: str, option: dict[str, Any], inside: str = "") -> list[str]:
    default = "required" if option.get("required") else f"`{option['default']}`" if "default" in option else ""
    meaning = str(option.get("description", "")).replace("|", "\\|")
    rows = [f"| `{inside}{name}` | {option.get('type', 'str')} | {default.replace('|', chr(92) + '|')} | {meaning} |"]
    for key, inner in option.get("options", {}).items():
        rows += _rows(key, inner, f"{inside}{name}[].")
    return rows


def node_pages(reference: Path) -> dict[Path, str]:
    """Return every page about nodes, by file."""
    roles = sorted(p.parents[1] for p in ROLES.glob("*/meta/argument_specs.yml"))
    pages = {reference / "roles" / f"{r.name}.md": role_page(r) for r in roles}
    index = ["# Roles", "", "<!-- Made by docs/generate.py. -->", "", "| role | what for |", "| --- | --- |"]
    for r in roles:
        spec = yaml.safe_load((r / "meta" / "argument_specs.yml").read_text("utf-8"))["argument_specs"]["main"]
        index.append(f"| [{r.name}]({r.name}.md) | {spec['short_description']} |")
    return pages | {reference / "roles" / "README.md": "\n".join(index) + "\n", reference / "version-matrix.md": matrix_page()}
