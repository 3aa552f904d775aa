"""Provision, tests: fleetctl where the package azure-identity is not installed. Only for tests."""

from __future__ import annotations

import sys

from fleetctl.cli.main import main

if __name__ == "__main__":
    sys.modules["azure.identity"] = None  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))
