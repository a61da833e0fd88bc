"""Build once and perform each run once; the tests read the resulting files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.oracle.build import ClassPaths, build
from tests.oracle.rewrites import Rewrites
from tests.oracle.runs import RUNS, FinishedRun, perform


@pytest.fixture(scope="session")
def prefix_of_temporary_files() -> str:
    """Java reads server.properties as Latin-1: a broker finds log.dirs in ASCII only."""
    return "ks-"


@pytest.fixture(scope="session")
def class_paths() -> ClassPaths:
    return build()


@pytest.fixture(scope="session")
def finished(
    class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], FinishedRun]:
    """Return a finished run by its name; the first request performs it."""
    root = tmp_path_factory.mktemp("oracle")
    by_name = {run.name: run for run in RUNS}

    @cache
    def finish(name: str) -> FinishedRun:
        return perform(by_name[name], root / name, class_paths)

    return finish


@pytest.fixture(scope="session")
def rewrites(
    class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rewrites]:
    directory = tmp_path_factory.mktemp("rewrites")
    with Rewrites(class_paths.broker, class_paths.conversion, directory) as running:
        yield running
