"""A partition without findings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.partitions import HealthyPartition


@pytest.fixture
def partition(tmp_path: Path) -> HealthyPartition:
    return HealthyPartition(tmp_path / "orders-0")
