"""Options with numbers that are too large for them."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kafkascan.cli.commands import cli
from tests.support.command_line import run

# Without arguments: options are read first.
TOO_LARGE = ("9" * 23, "-" + "9" * 23)


def numeric_options(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command with each of its options that takes a number."""
    if path == ("dump-log",):  # reads numbers as Kafka's tool does, and ends with its exit code
        return
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from numeric_options(found, (*path, name))
        return
    for option in command.params:
        is_number = isinstance(option.type, (click.types.IntParamType, click.types.FloatParamType))
        if isinstance(option, click.Option) and is_number and not option.is_flag:
            yield (*path, option.opts[-1])


OPTIONS = [" ".join(words) for words in numeric_options(cli, ())]


def test_there_are_such_options() -> None:
    assert len(OPTIONS) > 50


@pytest.mark.parametrize("value", TOO_LARGE)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_number_of_more_than_64_bits_is_wrong_usage(option: str, value: str) -> None:
    done = run(*option.split(), value)
    assert done.returncode == 2
    assert option.split()[-1] in done.stderr
    assert "64 bits" in done.stderr or "range" in done.stderr
