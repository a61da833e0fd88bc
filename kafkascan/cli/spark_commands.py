"""The verbs that run on Spark. pyspark is imported when one of them runs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kafkascan.cli.options import Time
from kafkascan.cli.output import FORMATS, open_writer
from kafkascan.cli.session import EXIT_UNREADABLE, EXIT_USAGE
from kafkascan.names import printable

_POLL_SECONDS = 0.2
_INSTALL = "this needs pyspark: pip install 'kafkascan[spark]'"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Run over a fleet of logs, on Spark.

    PATHS are segment files, folders of partitions, brokers' data dirs, globs, or URLs of an
    object store. The manifest goes to stdout, the summary and findings to stderr.
    """


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    wrong = [value for value in values if "=" not in value]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def _job(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what all jobs take."""
    decorators: list[Callable[..., Any]] = [
        click.argument("paths", nargs=-1, required=True),
        click.option(
            "--format", "output_format", type=click.Choice(FORMATS), default="table",
            show_default=True, help="Of the manifest.",
        ),
        click.option("--master", help="Such as local[*] or spark://host:7077."),
        click.option("--remote", help="A Spark Connect server, such as sc://host."),
        click.option(
            "--conf", multiple=True, callback=_pairs, metavar="NAME=VALUE", help="Of Spark."
        ),
        click.option(
            "--option", "options", multiple=True, callback=_pairs, metavar="NAME=VALUE",
            help="Of the data source, such as topics=orders or where='producerId == 7'.",
        ),
        click.option(
            "--quiet", is_flag=True, help="Neither progress nor the summary, on stderr."
        ),
        click.pass_context,
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return spark.command()(command)


def _output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what jobs take that write Parquet."""
    decorators: list[Callable[..., Any]] = [
        click.option(
            "--output", required=True, metavar="FOLDER",
            help="That all executors see, or a URL of an object store.",
        ),
        click.option("--compression", default="zstd", show_default=True, help="Of Parquet."),
        click.option(
            "--output-storage-options", metavar="JSON",
            help="Of the store that is written to, if not those of the option storageOptions.",
        ),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


_OUTPUT_NAMES = ("output", "compression", "output_storage_options")


@_job
def verify(context: click.Context, **arguments: Any) -> None:
    """Verify the checksum of every batch; a row per file."""
    _run(context, "verify", arguments)


@_job
@_output
def catalog(context: click.Context, **arguments: Any) -> None:
    """Write every batch header to Parquet."""
    _run(context, "catalog", arguments, *_OUTPUT_NAMES)


@_job
@_output
def export(context: click.Context, **arguments: Any) -> None:
    """Write records to Parquet, a file per range of a segment."""
    _run(context, "export", arguments, *_OUTPUT_NAMES)


@_job
@click.option("--target", metavar="FOLDER", help="Gets a folder for each partition.")
@click.option("--next-to-segments", is_flag=True, help="Of logs that no broker has open.")
@click.option("--force", is_flag=True, help="Next to the last segment of a log, too.")
@click.option("--interval-bytes", type=click.IntRange(min=0), default=4096, show_default=True,
              help="Kafka's index.interval.bytes.")  # fmt: skip
def rebuild_indexes(context: click.Context, **arguments: Any) -> None:
    """Build .index and .timeindex files anew, as Kafka's recovery would."""
    names = ("target", "next_to_segments", "force", "interval_bytes")
    _run(context, "rebuild_indexes", arguments, *names)


@_job
def producer_stats(context: click.Context, **arguments: Any) -> None:
    """Sum up what each producer wrote to each partition."""
    _run(context, "producer_stats", arguments)


@_job
@click.option("--earliest", "earliest_ms", type=Time(), default=0, show_default=True,
              help="Earlier timestamps are bad.")  # fmt: skip
@click.option("--latest", "latest_ms", type=Time(), help="Later ones are; default: in an hour.")
def bad_timestamps(context: click.Context, **arguments: Any) -> None:
    """Find segments with timestamps that cannot be true."""
    _run(context, "bad_timestamps", arguments, "earliest_ms", "latest_ms")


def _run(context: click.Context, job: str, arguments: dict[str, Any], *names: str) -> None:
    """Run a job, and print what it found."""
    try:
        from pyspark.errors import PySparkException

        from kafkascan.spark import jobs
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{_INSTALL} ({error})") from None
    keywords = {name: arguments[name] for name in names} | arguments["options"]
    try:
        with _session(job, arguments) as session, _progress(session, arguments["quiet"]):
            report = getattr(jobs, job)(session, list(arguments["paths"]), **keywords)
    except (ValueError, TypeError, FileExistsError) as error:
        _fail(context, error, EXIT_USAGE)
    except (OSError, PySparkException) as error:
        _fail(context, error, EXIT_UNREADABLE)
    writer = open_writer(arguments["output_format"], report.manifest.column_names)
    if len(report.manifest):
        columns = report.manifest.to_pydict()
        writer.write({name: [_plain(one) for one in column] for name, column in columns.items()})
    writer.close()
    for finding in report.findings:
        print(printable(finding), file=sys.stderr)
    if not arguments["quiet"]:
        print(report, file=sys.stderr)
    context.exit(report.exit_code)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


def _fail(context: click.Context, error: Exception, code: int) -> None:
    # Of a Python error in a task, Spark shows the whole traceback; its last line says what it is.
    lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
    said = next((line for line in reversed(lines) if "Error" in line), lines[0])
    print(f"kafkascan: {printable(said.strip())}", file=sys.stderr)
    context.exit(code)


@contextmanager
def _session(job: str, arguments: dict[str, Any]) -> Iterator[Any]:
    """Start Spark, or take the session that spark-submit made; stop it at last."""
    from pyspark.sql import SparkSession

    from kafkascan.spark import recommended_conf

    builder = SparkSession.builder.appName(f"kafkascan {job}")
    conf = dict(arguments["conf"])
    if arguments["remote"]:
        builder = builder.remote(arguments["remote"])
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has its own settings
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        ours = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        conf = recommended_conf() | ours | conf
    if arguments["master"]:
        builder = builder.master(arguments["master"])
    for name, value in conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _progress(session: Any, is_quiet: bool) -> Iterator[None]:
    """Show how many tasks are done, where stderr is a terminal."""
    tracker = None
    if sys.stderr.isatty() and not is_quiet and hasattr(session, "_jsc"):
        tracker = session.sparkContext.statusTracker()
    if tracker is None:
        yield
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn())
    is_done = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        shown = progress.add_task("", total=None)

        def poll() -> None:
            while not is_done.wait(_POLL_SECONDS):
                found = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
                stages = [stage for stage in found if stage is not None]
                if stages:
                    total = sum(stage.numTasks for stage in stages)
                    done = sum(stage.numCompletedTasks for stage in stages)
                    progress.update(shown, total=total, completed=done)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            is_done.set()
            poller.join()
