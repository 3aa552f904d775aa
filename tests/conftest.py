"""What tests of several folders share: one lab with a configured target pool, brought up once per run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.e2e import Lab


@pytest.fixture(scope="session")
def whole_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Return the lab of this run; ask it for `fresh(policy)` first."""
    from tests.lab.e2e import make_lab

    yield from make_lab(tmp_path_factory.mktemp("e2e"))
