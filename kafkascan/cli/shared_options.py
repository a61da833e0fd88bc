"""Options that several commands share, each declared once."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem
from click.types import IntParamType

from kafkascan.broker_state.index_schemas import DEFAULT_INTERVAL_BYTES
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import (
    GROUPS_TOPIC,
    METADATA_TOPIC,
    REMOTE_TOPIC,
    SHARE_TOPIC,
    TRANSACTIONS_TOPIC,
    is_name_of_brokers,
)
from kafkascan.tables.schema import Schema

if TYPE_CHECKING:
    import numpy as np

    from kafkascan.cli.run import FindingReport, Run
    from kafkascan.logs.log_finding import PartitionFilter
    from kafkascan.tables.table import AnyTable
    from kafkascan.tables.writers import SortOrder

_AGO = re.compile(r"-(?P<count>[0-9]{1,9})(?P<unit>[smhd])")
_KCAT_OFFSET = re.compile(r"beginning|end|stored|-?[0-9]+|[se]@[0-9]+")
_MOST_SECONDS = 1 << 40  # what follows is far from any record
_TIMES = "write 2025-11-23T10:00:00+01:00 (UTC without a zone), now, -1h, -7d or milliseconds"
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

FORMATS = ("table", "json", "jsonl", "csv")
"""The output formats; those of files have parquet, too."""

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]


class Time(click.ParamType):  # type: ignore[type-arg]  # subscripted from click 8.4 on
    """
    A point in time: ISO 8601 (UTC without a zone), now or a time before it, or milliseconds.

    ``-90s``, ``-15m``, ``-1h`` and ``-7d`` are times before now. A number of milliseconds that is
    not in this century may be one of seconds, or a year; it is an error.
    """

    name = "time"

    def convert(self, value: Any, param: Any, context: Any) -> int:
        """Return milliseconds since the epoch."""
        import numpy as np

        from kafkascan.format.times import THIS_CENTURY, milliseconds_or_now, to_milliseconds

        if value == "now":
            return milliseconds_or_now()
        ago = _AGO.fullmatch(value) if isinstance(value, str) else None
        if ago is not None:
            return milliseconds_or_now() - int(ago["count"]) * _UNITS[ago["unit"]]
        try:
            milliseconds = to_milliseconds(value)
        except ValueError:
            self.fail(f"{value!r} is no time; {_TIMES}", param, context)
        is_number = isinstance(value, str) and value.lstrip("+-").isdecimal()
        if is_number and milliseconds not in THIS_CENTURY:
            readings = f"{_iso(np.datetime64(milliseconds, 'ms'))} in milliseconds"
            if abs(milliseconds) < _MOST_SECONDS:
                readings += f", and {_iso(np.datetime64(milliseconds, 's'))} in seconds"
            self.fail(f"{value} is {readings}; {_TIMES}", param, context)
        return milliseconds


def _iso(time: np.datetime64) -> str:
    import numpy as np

    return str(np.datetime_as_string(time, timezone="UTC"))


class _Of64Bits:
    """Refuses what the functions behind the options refuse, before they run."""

    def convert(self, value: Any, param: Any, context: Any) -> int:
        """Return the number; one that needs more than 64 bits is an error."""
        number: int = super().convert(value, param, context)  # type: ignore[misc]
        if not -(1 << 63) <= number < 1 << 63:
            self.fail(f"{value} needs more than 64 bits.", param, context)  # type: ignore[attr-defined]
        return number


class Integer(_Of64Bits, IntParamType):
    """Any integer of 64 bits."""


class IntegerRange(_Of64Bits, click.IntRange):
    """Integers of 64 bits from a smallest one to a largest one."""


class NameList(click.ParamType):  # type: ignore[type-arg]  # subscripted from click 8.4 on
    """Some of a command's columns, separated by commas, or ``all``."""

    name = "columns"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the last name of a list."""
        before, comma, last = incomplete.rpartition(",")
        names = (one for one in self.known if one.startswith(last))
        return [CompletionItem(f"{before}{comma}{one}") for one in names]

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, ...]:
        """Return the names; an unknown one is an error."""
        if value == "all":
            return tuple(self.known)
        names = tuple(dict.fromkeys(value.split(","))) if isinstance(value, str) else value
        for one in names:
            if one not in self.known:
                import difflib  # for a wrong name only

                close = difflib.get_close_matches(one, self.known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(self.known)}"
                self.fail(f"there is no column {one!r}; {hint}", param, context)
        return tuple(names)


class SortColumn(click.ParamType):  # type: ignore[type-arg]  # as `NameList`
    """A column, or one after a minus sign: then the largest value comes first."""

    name = "column"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = NameList(tuple(dict.fromkeys(known)))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the name of a column."""
        return self.known.shell_complete(ctx, param, incomplete)

    def convert(self, value: Any, param: Any, context: Any) -> SortOrder:
        """Return the order; an unknown column is an error."""
        from kafkascan.tables.writers import SortOrder

        (column,) = self.known.convert((value.removeprefix("-"),), param, context)
        return SortOrder(column, value.startswith("-"))


class OffsetOrTime(click.ParamType):  # type: ignore[type-arg]  # as `InputPath`
    """An offset, or a point in time in ISO 8601 (UTC without a zone)."""

    name = "offset|time"

    def convert(self, value: Any, param: Any, context: Any) -> int | np.datetime64:
        """Return an offset as an integer, and a time as a datetime64."""
        import numpy as np

        if not isinstance(value, str):
            return int(value) if isinstance(value, int) else np.datetime64(value)
        if value.isascii() and value.isdecimal():
            return int(value)
        milliseconds = Time().convert(value, param, context)
        return np.datetime64(milliseconds, "ms")


class InputPath(click.ParamType):  # type: ignore[type-arg]  # subscripted from click 8.4 on
    """A path or URL. An empty path, such as from an unset variable, is an error."""

    name = "path"

    def convert(self, value: Any, param: Any, context: Any) -> Path:
        """Return the path; of a ``file://`` URL, that of the file."""
        from kafkascan.io.stores.urls import UrlPath, path_or_url

        if value == "":
            self.fail("the path is empty", param, context)
        place = path_or_url(value)
        return place if isinstance(place, Path) else UrlPath(place.url)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Let the shell complete files and folders."""
        return [CompletionItem(incomplete, type="file")]


class DiskPath(InputPath):
    """A path. The URL of a store is an error: what is written must be on a disk."""

    def convert(self, value: Any, param: Any, context: Any) -> Path:
        """Return the path."""
        from kafkascan.io.stores.urls import UrlPath

        path = super().convert(value, param, context)
        if isinstance(path, UrlPath):
            self.fail(f"{path}: files are written, which must be on a disk", param, context)
        return path


class OutputPath(DiskPath):
    """A file to write. A file of a broker, or what is no regular file, is an error."""

    def convert(self, value: Any, param: Any, context: Any) -> Path:
        """Return the path."""
        if isinstance(value, str) and _KCAT_OFFSET.fullmatch(value):
            self.fail(
                f"{value} is an offset of kcat, where this option is a file: use --from-offset,"
                f" --tail or --follow, or name the file ./{value}",
                param, context,
            )  # fmt: skip
        path = super().convert(value, param, context)
        if os.path.exists(path) and not os.path.isfile(path):
            self.fail(f"{path}: not a regular file", param, context)
        # A link may have any name.
        if any(is_name_of_brokers(name) for name in (path.name, Path(os.path.realpath(path)).name)):
            self.fail(f"{path}: a broker's file has such a name", param, context)
        return path


NATURAL = IntegerRange(min=0)
POSITIVE = IntegerRange(min=1)
SIZE = IntegerRange(0, 2**31 - 1)


def option(usage: str, *names: str, **settings: Any) -> Decorator:
    """
    Declare an option.

    Parameters
    ----------
    usage : str
        How it is used, such as ``-o --output FILE``. Without a value, it is a flag.
    *names : str
        Name of the function's argument, if it is another one.
    **settings
        Those of `click.option`; a tuple as ``type`` contains the choices, and the help shows a
        default.
    """
    flags = [one for one in usage.split() if one.startswith("-")]
    metavar = usage.removeprefix(" ".join(flags)).strip() or None
    if metavar is None and not {"type", "default"} & settings.keys():
        settings["is_flag"] = True
    if isinstance(settings.get("type"), tuple):
        settings["type"] = click.Choice(settings["type"])
    if "default" in settings:
        settings.setdefault("show_default", True)
    if isinstance(settings.get("type"), (Time, OffsetOrTime)):
        settings["help"] += f" For a time, {_TIMES}."
    return click.option(*flags, *names, metavar=metavar, **settings)


def declare(command: Command, *options: Decorator) -> Command:
    """Apply decorators; the help text lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


# ---- inputs of a command ---------------------------------------------------------------------

_FILES_HELP = """
PATHS are segment files, partition directories, data directories, tar archives of directories,
or URLs of files and directories. In directories and archives, only the segments that a broker
would load are read; --all adds the other files. A path of a file is read whatever its name is.
"""
_LOGS_HELP = """
PATHS are segment files, partition directories, data directories, tar archives of directories,
or URLs of files and directories. In directories and archives, only the segments that a broker
would load are read.
"""

PATH = click.argument("path", type=InputPath())
DISK_PATH = click.argument("path", type=DiskPath())
_DESTINATION = click.argument("destination", required=False, type=DiskPath())
PATHS = click.argument("paths", nargs=-1, required=True, type=InputPath())

_ALL_FILES = option("--all", "all_files",
                    help="Also read .deleted, .cleaned, .swap and .checkpoint files, partitions"
                    " that are being deleted or are stray, and batches before the log start"
                    " offset.")  # fmt: skip
_MEMORY_MAP = option("--memory-map/--no-memory-map", default=True,
                     help="Map files into memory, or read them in chunks.")  # fmt: skip
_DROP_CACHE = option("--drop-cache/--keep-cache", "drop_cache", default=None,
                     help="Drop each file from the page cache after reading it, or leave it there."
                     " By default, what was not there before is dropped. A broker that serves the"
                     " same files would have to read dropped ones from disk again.")  # fmt: skip
KEEP_CACHE = option("--keep-cache",
                    help="Leave everything in the page cache. By default, what was not there before"
                    " is dropped.")  # fmt: skip


_TOPIC = option("-t --topic TOPIC", "topics", multiple=True,
                help="Read only the partitions of TOPIC in directories and archives; may be given"
                " several times.")  # fmt: skip
_PARTITION = option("-p --partition N", "partitions", type=NATURAL, multiple=True,
                    help="Read only the partitions with the number N; may be given several"
                    " times.")  # fmt: skip


ISOLATION = option("--isolation", type=("read_uncommitted", "read_committed"),
                   default="read_uncommitted",
                   help="read_committed shows what a consumer with this isolation.level gets: no"
                   " records of aborted transactions, and none from the first open transaction"
                   " on.")  # fmt: skip


def with_segments(command: Command) -> Command:
    """Declare the options of a command that reads segment files, passed as `SegmentPaths`."""

    @functools.wraps(command)
    def call(
        paths: Sequence[Path],
        topics: tuple[str, ...],
        partitions: tuple[int, ...],
        all_files: bool,
        memory_map: bool,
        drop_cache: bool | None,
        **arguments: Any,
    ) -> None:
        from kafkascan.logs.log_dir import SegmentKinds
        from kafkascan.logs.log_finding import PartitionFilter
        from kafkascan.logs.queries.segment_inputs import SegmentPaths

        include = SegmentKinds.ALL if all_files else SegmentKinds.LOG
        start = 0 if all_files else None
        wanted = PartitionFilter.of(topics or None, partitions or None)
        segments = SegmentPaths(list(paths), include, start, memory_map, drop_cache, wanted)
        command(segments=segments, **arguments)

    extend_help(call, _FILES_HELP)
    return declare(call, PATHS, _TOPIC, _PARTITION, _ALL_FILES, _MEMORY_MAP, _DROP_CACHE)


def with_destination(command: Command) -> Command:
    """Declare the path of a command that copies logs, and where to, if at all."""

    @functools.wraps(command)
    def call(destination: Path | None, dry_run: bool, **rest: Any) -> None:
        command(destination=None if dry_run else destination, **rest)

    dry_run = option("-n --dry-run", help="Write nothing, also if DESTINATION is given.")
    return declare(call, PATH, _DESTINATION, dry_run)


def with_dry_run(*writing: str) -> Decorator:
    """Declare --dry-run of a command that changes something only with one of some options."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(dry_run: bool, **rest: Any) -> None:
            for name in writing:
                if dry_run and rest[name]:
                    raise click.UsageError(f"--dry-run and --{name} cannot be combined")
            command(**rest)

        return declare(call, option("-n --dry-run", help="Change nothing, which is the default."))

    return decorate


def with_logs(command: Command) -> Command:
    """Declare the paths of a command that reads whole logs, passed as ``paths``."""
    extend_help(command, _LOGS_HELP)
    return declare(command, PATHS, with_partitions)


def with_partitions(command: Command) -> Command:
    """Declare the options that select partitions, passed as ``wanted``."""

    @functools.wraps(command)
    def call(topics: tuple[str, ...], partitions: tuple[int, ...], **rest: Any) -> None:
        from kafkascan.logs.log_finding import PartitionFilter

        command(wanted=PartitionFilter.of(topics or None, partitions or None), **rest)

    return declare(call, _TOPIC, _PARTITION)


def extend_help(command: Command, paragraph: str) -> None:
    """Append a paragraph to the help text of a command."""
    command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n{paragraph}"


# ---- where it writes rows --------------------------------------------------------------------


_WIDE = option("--wide", help="Show all columns in a table.")
_ISO = option("--iso", help="Write times in ISO 8601 in json, jsonl and csv, not in milliseconds.")
_EXACT = option("--exact",
                help="Show sizes in bytes, durations in milliseconds and file names in full in a"
                " table, as the other formats do.")  # fmt: skip


def with_run(
    columns: Schema | None = None,
    *,
    to_file: bool = False,
    rows: str = "rows",
    is_narrow: bool = False,
    sorts: Sequence[str] | None = None,
    quiet: str = "Show no progress on a terminal.",
) -> Decorator:
    """
    Declare the options of a command that writes rows; it gets a `Run` and exits with its code.

    Parameters
    ----------
    columns : Schema, optional
        The columns of the rows, of which --columns selects some.
    to_file : bool, default False
        Offer to write to a file, also as Parquet.
    rows : str
        What the help text calls the rows.
    is_narrow : bool, default False
        Whether a table has fewer columns than there are, also without `columns`.
    sorts : sequence of str, optional
        The columns by which --sort sorts; by default all of `columns`.
    quiet : str
        What --quiet does. Findings and the exit code stay.
    """
    formats = (*FORMATS, "parquet") if to_file else FORMATS
    options = [
        option("--format", "output_format", type=formats,
               show_default="the extension of --output, or table" if to_file else "table",
               help=f"Output format of the {rows}. In csv, text that a spreadsheet would evaluate"
               " as a formula gets a leading apostrophe."),
        option("--json", "output_format", flag_value="json", help="Short for --format json."),
    ]  # fmt: skip
    if to_file:
        options.append(
            option("-o --output FILE", "output_file", type=OutputPath(),
                   help="Write to FILE instead of stdout (atomically). Required for parquet."
                   " Without --format, its extension selects the format:"
                   f" {', '.join(f'.{one}' for one in formats[1:])}; .txt or none for a table.")
        )  # fmt: skip

    if columns is not None:
        options.append(
            option("--columns NAMES", "shown", type=NameList(columns.names),
                   help="Columns to write, separated by commas, or `all`. Known columns:"
                   f" {', '.join(columns.names)}.")
        )  # fmt: skip
        sorts = columns.names if sorts is None else sorts
    if sorts:
        options.append(
            option("--sort [-]COLUMN", "sort", type=SortColumn(sorts),
                   help="Sort the rows by COLUMN; after a minus sign, the largest come first.")
        )  # fmt: skip
    if is_narrow or columns is not None:
        options.append(_WIDE)
    options += [_EXACT, _ISO, option("--quiet", "is_quiet", help=quiet)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(
            output_format: str | None,
            exact: bool,
            iso: bool,
            is_quiet: bool,
            output_file: Path | None = None,
            shown: tuple[str, ...] | None = None,
            wide: bool = False,
            sort: SortOrder | None = None,
            **arguments: Any,
        ) -> None:
            from kafkascan.cli.output import RowOutput, format_by_extension
            from kafkascan.cli.run import Run

            chosen = output_format or format_by_extension(output_file)
            if chosen not in formats:
                known = ", ".join(formats)
                raise click.UsageError(f"{output_file}: the rows are written as {known}")
            target = RowOutput(chosen, output_file, shown, wide, exact, iso, sort)
            target.check()
            run = Run(target, is_quiet=is_quiet)
            command(run=run, **arguments)
            click.get_current_context().exit(run.exit_code)

        return declare(call, *options)

    return decorate


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn what the library says about arguments and missing packages into wrong usage."""
    try:
        yield
    except (ValueError, ImportError) as error:
        if isinstance(error, KafkaScanError):
            raise
        raise click.UsageError(str(error)) from error


def table_command(
    schema: Schema,
    *options: Decorator,
    inputs: Decorator = with_logs,
    to_file: bool = True,
    rows: str = "rows",
    damage: tuple[type[KafkaScanError], ...] = (),
) -> Callable[[Command], click.Command]:
    """
    Declare a command that prints the rows of a table of the library for each of its paths.

    The function gets a path, a `FindingReport` and the options; it returns a table, whose problems
    are findings.

    Parameters
    ----------
    schema : Schema
        Of the rows.
    *options : decorators
        Of the command, in the order of its help.
    inputs : decorator, default `with_logs`
        Declares the paths: ``paths``, or one ``path``.
    to_file, rows
        See `with_run`.
    damage : tuple of types
        See `Run.each`.
    """

    def decorate(read: Command) -> click.Command:
        @functools.wraps(read)
        def command(
            run: Run,
            paths: Sequence[Path] = (),
            path: Path | None = None,
            wanted: PartitionFilter | None = None,
            **arguments: Any,
        ) -> None:
            def work(one: Path, report: FindingReport) -> AnyTable:
                with usage_errors():
                    place = one if wanted is None else wanted.select(one)
                    found: AnyTable = read(place, report, **arguments)
                report.add_problems(found.problems)
                return found

            found = run.each(paths if path is None else [path], work, damage)
            run.output.write_tables(schema, found)

        outer = with_run(schema, to_file=to_file, rows=rows)
        declared: click.Command = click.command()(inputs(outer(declare(command, *options))))
        return declared

    return decorate


def check_ranges(**bounds: Any) -> None:
    """
    Refuse ranges that end before they begin: they select nothing, which looks like an answer.

    Ends are exclusive, as Kafka's end offsets are.

    Parameters
    ----------
    **bounds : int or None
        The values of options such as ``--from-offset`` and ``--to-offset``, and others.
    """
    for unit in ("offset", "time"):
        first, end = bounds.get(f"from_{unit}"), bounds.get(f"to_{unit}")
        if first is not None and end is not None and end < first:
            raise click.UsageError(f"--to-{unit} is before --from-{unit}")


def with_row_options(rows: str, column: str, before: str, after: str) -> Decorator:
    """
    Declare which rows to show: ranges, --limit, --tail, --around, --context and --follow.

    Parameters
    ----------
    rows, column : str
        What the help texts call the rows, and their column of times.
    before, after : str
        Which rows the ends of --from-offset and --to-offset exclude. The command gets a `RowRange`
        as ``limits``.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(
            from_offset: int | None,
            to_offset: int | None,
            from_time: int | None,
            to_time: int | None,
            **arguments: Any,
        ) -> None:
            from kafkascan.logs.queries.conditions import RowRange

            limits = RowRange(from_offset, to_offset, from_time, to_time)
            check_ranges(**limits._asdict())
            command(limits=limits, **arguments)

        return declare(
            call,
            option("--from-offset OFFSET", type=Integer(), help=f"Skip {rows} {before}."),
            option("--to-offset OFFSET", type=Integer(), help=f"Skip {rows} {after}."),
            option("--from-time TIME", type=Time(),
                   help=f"Skip {rows} with a {column} before TIME."),
            option("--to-time TIME", type=Time(),
                   help=f"Skip {rows} with a {column} of TIME or later."),
            option("-c --limit N", type=NATURAL, help=f"Show at most N {rows}."),
            option("--tail N", type=NATURAL,
                   help=f"Show the last N {rows}. Without conditions, only the end of the last log"
                   " is read."),
            option("--around OFFSET|TIME", type=OffsetOrTime(),
                   help=f"Show, of each log, the {rows} before and after OFFSET, or before and"
                   f" after the first one with a {column} of TIME or later. Without other"
                   " conditions, only a part of the log is read, from an entry of its offset index"
                   " on, if a valid batch is there; for a TIME, also the batch headers before it."),
            option("--context N", type=NATURAL, default=5,
                   help=f"Show N {rows} before --around, and N from there on."),
            option("--follow", "is_followed",
                   help="Wait for what a broker appends to the logs, and show it; Ctrl-C ends the"
                   " command."),
        )  # fmt: skip

    return decorate


# ---- the rest --------------------------------------------------------------------------------

ALL_OFFSETS = option("--all", "log_start_offset", type=int, flag_value=0, default=None,
                     help="Also read records before the log start offset, which a broker no longer"
                     " serves (DeleteRecords).")  # fmt: skip
THREADS = option("--threads N", type=POSITIVE, show_default="CPU count", help="Number of threads.")
AS_OF = option("--as-of OFFSET|TIME", type=OffsetOrTime(), show_default="the end of the log",
               help="Show the state before OFFSET, or at TIME (ISO 8601).")  # fmt: skip
NOW = option("--now TIME", "now_ms", type=Time(),
             help="Evaluate ages relative to TIME instead of now.")  # fmt: skip
TIMEOUT = option("--timeout-ms MS", type=NATURAL, default=900_000,
                 help="Report transactions that are open for more than MS milliseconds as hanging."
                 " Set it to the broker's transaction.max.timeout.ms.")  # fmt: skip
VERIFY = option("--verify/--no-verify", default=True,
                help="Verify the checksums of all batches, or read batch headers"
                " only.")  # fmt: skip
JSON_REPORT = option("--report FILE", type=OutputPath(),
                     help="Write the complete result to FILE as JSON.")  # fmt: skip


def interval_bytes(default: str | None = None) -> Decorator:
    """Declare --interval-bytes; `default` describes a default that depends on the input."""
    return option("--interval-bytes BYTES", type=SIZE,
                  default=DEFAULT_INTERVAL_BYTES if default is None else None,
                  show_default=True if default is None else default,
                  help="Bytes of log between two index entries: the broker's"
                  " index.interval.bytes.")  # fmt: skip


DECODED_AS = {
    "groups": GROUPS_TOPIC,
    "txns": TRANSACTIONS_TOPIC,
    "share": SHARE_TOPIC,
    "metadata": METADATA_TOPIC,
    "remote": REMOTE_TOPIC,
}
"""Names of Kafka's own topics in the option --decode."""

ITEM_FORMS = ("text", "hex", "base64", "json")
"""How keys and values of records may be shown."""

TYPED = "auto"
"""The form of items that are decoded by the schemas of a registry."""


def with_registry(command: Command) -> Command:
    """Declare the options that say which schemas keys and values are decoded by."""
    return declare(
        command,
        option(
            "--registry PLACE",
            help="The schemas for --key-as auto and --value-as auto: a data dir or partition with"
            " the topic _schemas, a folder of .avsc, .proto and .json files, a dump or the URL of a"
            " registry. By default, the data dir of the logs.",
        ),
        option(
            "--value-schema SUBJECT[:VERSION]",
            help="Decode values into the columns of this schema. By default, into those of the"
            " newest version of the subject TOPIC-value.",
        ),
        option(
            "--value-message NAME",
            default="",
            help="The Protobuf message of the values, by its full name, if the schema has several."
            " By default, that of the first records.",
        ),
    )
