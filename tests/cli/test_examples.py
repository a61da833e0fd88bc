"""The examples at the end of each command's help are right as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from kafkascan.cli.commands import cli
from kafkascan.cli.verb_table import VERBS
from tests.support.command_line import run
from tests.support.machine import make_machine

CHANGING = ("recover", "salvage", "restore", "convert", "restamp", "scrub")
ALL_LINES = [(name, line) for name, verb in VERBS.items() for line in verb.examples]


def test_every_command_has_examples_of_its_own() -> None:
    assert all(len(verb.examples) == 2 for verb in VERBS.values())
    assert all(shlex.split(line)[0] == verb for verb, line in ALL_LINES)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_ends_with_two_examples(verb: str) -> None:
    shown = run(verb, "--help").stdout
    first, second = VERBS[verb].examples
    assert shown.endswith(f"\n  Examples:\n    kafkascan {first}\n    kafkascan {second}\n")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def own_machine(tmp_path: Path) -> Path:
    return make_machine(tmp_path)


@pytest.mark.parametrize("line", [line for verb, line in ALL_LINES if verb != "spark"])
def test_an_example_runs(
    line: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes_logs = line.split()[0] in CHANGING
    monkeypatch.chdir(request.getfixturevalue("own_machine" if changes_logs else "machine"))
    words = [word.removeprefix("/") for word in shlex.split(line)]
    done = run(*words)
    assert done.returncode in (0, 1), done.stderr
    assert done.stdout or "--output" in words


@pytest.mark.parametrize("line", VERBS["spark"].examples)
def test_an_example_of_spark_is_parsed(line: str) -> None:
    group, job, *words = shlex.split(line)
    context = click.Context(cli)
    jobs = cli.get_command(context, group)
    assert isinstance(jobs, click.Group)
    command = jobs.get_command(context, job)
    assert command is not None
    assert command.make_context(job, words).params["paths"]
