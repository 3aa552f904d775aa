"""Write the README of every Terraform module and stack from its code. `--check` only compares and ends with 1.

Usage: python docs/terraform_readme.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.hcl_blocks import Block, read_file, read_folder  # noqa: E402

MADE = "<!-- Made by docs/terraform_readme.py from the code. Do not edit. -->"
TERRAFORM = ROOT / "terraform"
INTROS = {
    "amd_pool_azure": "AMD Instinct MI300X hosts on Azure (ND MI300X v5, with or without InfiniBand).",
    "nvidia_pool_azure": "NVIDIA hosts on Azure.",
    "gpu_vms_azure": "GPU hosts on Azure, of either vendor; use it through amd_pool_azure or nvidia_pool_azure, which know their sizes.",
    "network_azure": "A network for inference hosts on Azure: closed, but for who is named.",
    "nvidia_pool_aws": "NVIDIA hosts on AWS: named instances or an Auto Scaling group, on demand, spot or from a capacity block.",
    "network_aws": "A network for inference hosts on AWS: closed, but for who is named.",
    "alb_weighted": "An application load balancer whose listener splits by weight between two target groups; the router owns the weights.",
    "azure": "One pool on Azure, of either vendor, with a network of its own where none is given.",
    "aws": "One NVIDIA pool on AWS, with a network of its own where none is given.",
    "lab": "Lab stand-in: emulated hosts, which are folders on this machine. No cloud, no provider to download.",
}


def folders() -> list[Path]:
    """Return every module and stack."""
    return sorted(p for kind in ("modules", "stacks") for p in (TERRAFORM / kind).iterdir() if (p / "versions.tf").exists())


def page(folder: Path) -> str:
    """Return the README of a folder."""
    blocks = read_folder(folder)
    lines = [f"# {folder.name}", "", MADE, "", INTROS[folder.name], ""]
    lines += _requirements(blocks)
    lines += _examples(folder)
    lines += ["## Inputs", "", "| name | type | default | what it is |", "| --- | --- | --- | --- |"]
    for block in (b for b in blocks if b.kind == "variable"):
        a = block.arguments
        default = f"`{_flat(a['default'])}`" if "default" in a else "required"
        lines.append(f"| `{block.labels[0]}` | `{_type(a.get('type', 'any'))}` | {default} | {_text(a.get('description', ''))} |")
    lines += ["", "## Outputs", "", "| name | what it is |", "| --- | --- |"]
    lines += [f"| `{b.labels[0]}` | {_text(b.arguments.get('description', ''))} |" for b in blocks if b.kind == "output"]
    made = sorted({b.labels[0] for b in blocks if b.kind == "resource"})
    used = sorted(re.sub(r'^"|"$', "", b.arguments.get("source", "")) for b in blocks if b.kind == "module")
    lines += ["", "## Makes", "", *[f"- `{name}`" for name in made], *[f"- what `{source}` makes" for source in dict.fromkeys(used)], ""]
    return "\n".join(lines)


def _requirements(blocks: list[Block]) -> list[str]:
    lines = ["## Needs", ""]
    for block in (b for b in blocks if b.kind == "terraform"):
        lines.append(f"- Terraform `{_flat(block.arguments['required_version']).strip(chr(34))}`")
        for inner in block.blocks:
            for name, value in inner.arguments.items():
                version = re.search(r'version\s*=\s*"([^"]+)"', value)
                lines.append(f"- provider `{name}` `{version[1] if version else 'any'}`")
    return [*lines, ""]


def _examples(folder: Path) -> list[str]:
    lines: list[str] = []
    for example in sorted(folder.glob("examples/*/main.tf")):
        read_file(example)
        lines += [f"## Example: {example.parent.name.replace('_', ' ')}", "", "```hcl", example.read_text().rstrip(), "```", ""]
    return lines


def _type(text: str) -> str:
    return re.match(r"\w+", text)[0] if text.startswith("object") else _flat(text)  # type: ignore[index]


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _text(text: str) -> str:
    return _flat(text).strip('"').replace('\\"', '"')


def main() -> int:
    """Write or compare every README."""
    stale = []
    for folder in folders():
        path, wanted = folder / "README.md", page(folder)
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != wanted:
                stale.append(path)
        else:
            path.write_text(wanted)
    for path in stale:
        print(f"{path.relative_to(ROOT)} is not current. Run: python docs/terraform_readme.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
