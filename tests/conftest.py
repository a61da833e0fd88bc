"""Report header, and groups of tests that one process runs."""

from __future__ import annotations

import platform
from collections.abc import Generator

import numpy as np
import pytest

import kafkascan as ks


def pytest_report_header() -> str:
    return (
        f"kafkascan {ks.__version__}, numpy {np.__version__}, {platform.machine()},"
        f" CRC-32C by {ks.crc32c_implementation()}"
        f" of {', '.join(ks.format.crc32c_implementations())}"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """
    Apply the marks ``xdist_group`` where pytest-xdist cannot.

    pytest-xdist 3.8 appends the group to `_nodeid`, which pytest 9.2 no longer reads.
    """
    yield
    for item in items:
        with_group = getattr(item, "_nodeid", item.nodeid)
        if with_group != item.nodeid:
            item._id = type(item._id).parse(with_group)  # type: ignore[attr-defined]
