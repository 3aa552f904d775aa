"""Every step, shell layer: `python -m fleetctl.cli` is `fleetctl`. Never anything else."""

import sys

from fleetctl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
