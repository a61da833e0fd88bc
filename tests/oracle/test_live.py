"""kafkascan reads every batch and record of real brokers as Kafka does."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

import pytest

from tests.oracle import scenarios
from tests.oracle.runs import RUNS, FinishedRun
from tests.oracle.stage import Scenario
from tests.support.compare import compare_segments
from tests.support.compare_records import compare_all_records

pytestmark = pytest.mark.oracle

Finished = Callable[[str], FinishedRun]

_SCENARIOS = [
    pytest.param(run.name, scenario, id=f"{run.name}-{scenario.name}")
    for run in RUNS
    for scenario in run.scenarios
]


def test_every_scenario_is_played() -> None:
    """Every scenario is part of a run."""
    written = {
        value.name
        for module in pkgutil.iter_modules(scenarios.__path__)
        for value in vars(importlib.import_module(f"{scenarios.__name__}.{module.name}")).values()
        if isinstance(value, Scenario)
    }
    assert written == {scenario.name for run in RUNS for scenario in run.scenarios}


@pytest.mark.parametrize(("run_name", "scenario"), _SCENARIOS)
def test_scenario_keeps_its_promises(run_name: str, scenario: Scenario, finished: Finished) -> None:
    """The files of every scenario have the content that it exists for, according to Kafka."""
    assert finished(run_name).broken_promises(scenario) == []


@pytest.mark.parametrize(("run_name", "scenario"), _SCENARIOS)
def test_every_field_of_every_batch(run_name: str, scenario: Scenario, finished: Finished) -> None:
    run = finished(run_name)
    compare_segments([run.described(log) for log in run.segments(scenario)])


@pytest.mark.parametrize(("run_name", "scenario"), _SCENARIOS)
def test_every_field_of_every_record(run_name: str, scenario: Scenario, finished: Finished) -> None:
    run = finished(run_name)
    compare_all_records([run.records(log) for log in run.segments(scenario)])


@pytest.mark.parametrize("run_name", [run.name for run in RUNS])
def test_no_segment_is_left_out(run_name: str, finished: Finished) -> None:
    """Topics that belong to no scenario are compared, too."""
    run = finished(run_name)
    compare_segments([run.described(log) for log in run.segments()])
    compare_all_records([run.records(log) for log in run.segments()])
