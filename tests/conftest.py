"""Report header, settings of Hypothesis, and groups of tests that one process runs."""

from __future__ import annotations

import gc
import os
import platform
import tempfile
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import kafkascan as ks
from tests.support.examples import examples

# A busy machine may take any time for an example. In CI, the examples follow from the tests'
# source, so that a commit passes or fails in every run; elsewhere, each run tries others.
settings.register_profile(
    "kafkascan",
    examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("kafkascan")


# What shell commands must quote, and what ASCII does not contain: users have such paths.
ODD_NAME = "ks \N{LATIN SMALL LETTER U WITH DIAERESIS}"


def pytest_configure(config: pytest.Config) -> None:
    """Let the workers of pytest-xdist have an odd path, too: their `tmp_path` is not in TMPDIR."""
    if getattr(config.option, "numprocesses", None):
        folder = Path(tempfile.gettempdir(), ODD_NAME)
        folder.mkdir(exist_ok=True)
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))


@pytest.fixture(scope="session")
def prefix_of_temporary_files() -> str:
    return f"{ODD_NAME}-"


@pytest.fixture(scope="session", autouse=True)
def temporary_files_are_removed(prefix_of_temporary_files: str) -> Generator[None]:
    """
    Let the programs that tests start keep their temporary files in a folder that is removed.

    Its path is short: Spark creates sockets there, whose paths have at most 103 bytes.
    """
    prefix = prefix_of_temporary_files
    with (
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TMPDIR", folder)
        patch.setenv("SPARK_LOCAL_DIRS", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def files_are_not_synced() -> Generator[None]:
    """
    Let `os.fsync` check its descriptor only.

    Waiting for the disk takes about as long as all else of the tests that write, and no test
    could see the difference: not even a kill loses what is not synced.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


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


@given(strategies.none())
def run_first_example(_: None) -> None:
    """Let Hypothesis create its random numbers, and find what refers to them, before a freeze."""


def pytest_collection_finish() -> None:
    """Let the garbage collector ignore the tests themselves: it takes 0.3 s to visit them."""
    run_first_example()
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let modules go as they do without tests."""
    gc.unfreeze()
