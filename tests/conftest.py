"""What tests of several folders share: one lab with a configured target pool, brought up once per run; how examples are drawn.

Properties draw the same examples in every run of `make test`, and new ones in `make test-full` (FLEETCTL_NEW_EXAMPLES=1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.lab.e2e import Lab

settings.register_profile("same", derandomize=True)
settings.register_profile("new", derandomize=False, print_blob=True)
settings.load_profile("new" if os.environ.get("FLEETCTL_NEW_EXAMPLES") else "same")


@pytest.fixture(scope="session")
def whole_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return the lab of this run; ask it for `fresh(policy)` first."""
    from tests.lab.e2e import make_lab

    yield from make_lab(tmp_path_factory.mktemp("e2e"))
