"""Provision, tests: a local provider mirror with the lab double of azurerm, and the genuine aws provider where there is
one. Never downloads."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MIRROR = "FLEETCTL_TF_MIRROR"
AZURERM = "5.2.0"


def target() -> str:
    """Return Terraform's name of this machine."""
    return f"{platform.system().lower()}_{ {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(platform.machine(), platform.machine()) }"


def aws_mirror(environ: dict[str, str] | None = None) -> Path | None:
    """Return the mirror that holds the genuine aws provider, None where FLEETCTL_TF_MIRROR names none."""
    named = (os.environ if environ is None else environ).get(MIRROR, "")
    found = Path(named) / "registry.terraform.io" / "hashicorp" / "aws" if named else None
    return Path(named) if found is not None and any(found.glob(f"*/{target()}/terraform-provider-aws*")) else None


def make_mirror(folder: Path) -> Path:
    """Write the double into a mirror and the command-line configuration beside it; return that configuration's path.

    Its name and version are azurerm's; what it says of itself is that it is a lab double.
    """
    place = folder / "mirror" / "registry.terraform.io" / "hashicorp" / "azurerm" / AZURERM / target()
    place.mkdir(parents=True)
    program = place / f"terraform-provider-azurerm_v{AZURERM}"
    run = f"cd {shlex.quote(str(ROOT))} && exec {shlex.quote(sys.executable)} -m tests.doubles.azurerm_provider"
    program.write_text(f"#!/bin/sh\n# Lab double of azurerm; not the real provider.\n{run}\n")
    program.chmod(0o755)
    genuine = aws_mirror()
    own = f'  filesystem_mirror {{\n    path    = "{folder / "mirror"}"\n    include = ["hashicorp/azurerm"]\n  }}\n'
    theirs = f'  filesystem_mirror {{\n    path    = "{genuine}"\n    include = ["hashicorp/aws"]\n  }}\n' if genuine else ""
    config = folder / "terraform.rc"
    rest = '  direct {\n    exclude = ["*/*/*"]\n  }\n'
    config.write_text(f"disable_checkpoint = true\nprovider_installation {{\n{own}{theirs}{rest}}}\n")
    return config
