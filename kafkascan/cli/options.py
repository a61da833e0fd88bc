"""What several verbs take."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kafkascan.cli.output import FORMATS


class Time(click.ParamType["int"]):
    """A point in time: milliseconds since the epoch, or ISO 8601 (UTC if it names no zone)."""

    name = "time"

    def convert(self, value: Any, param: Any, context: Any) -> int:
        """Return milliseconds since the epoch."""
        if isinstance(value, int):
            return value
        with contextlib.suppress(ValueError):
            return int(value)
        try:
            time = datetime.datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither milliseconds nor an ISO 8601 time", param, context)
        time = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
        return round(time.timestamp() * 1000)


class InputPath(click.ParamType["Path"]):
    """A path; an empty one, as of a variable that is not set, is not the current folder."""

    name = "path"

    def convert(self, value: Any, param: Any, context: Any) -> Path:
        """Return the path."""
        if value == "":
            self.fail("a path is empty", param, context)
        return Path(value)


def with_inputs(
    command: Callable[..., Any], formats: tuple[str, ...] = FORMATS
) -> Callable[..., Any]:
    """Add what all verbs take: paths, the output format, how files are read."""
    decorators = [
        click.argument("paths", nargs=-1, required=True, type=InputPath()),
        click.option(
            "--format", "output_format", type=click.Choice(formats), default="table",
            show_default=True, help="Of the rows; in CSV, formulas are text, behind an apostrophe.",
        ),
        click.option(
            "--memory-map/--no-memory-map", default=True, show_default=True,
            help="Map files, or read them piece by piece.",
        ),
        click.option(
            "--drop-cache", is_flag=True,
            help="Give the pages of each file back when it is done: for cold backups. A broker"
            " that serves from the same files would have to read them again.",
        ),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


with_threads = click.option(
    "--threads", type=click.IntRange(min=1), help="Segments at once; by default one per CPU."
)
