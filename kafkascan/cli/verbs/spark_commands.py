"""Commands that run on Spark. They import pyspark when they run."""

from __future__ import annotations

import functools
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kafkascan.cli.exit_codes import EXIT_UNREADABLE, EXIT_USAGE
from kafkascan.cli.shared_options import (
    Command,
    Decorator,
    declare,
    extend_help,
    interval_bytes,
    option,
    with_run,
)

if TYPE_CHECKING:
    from kafkascan.cli.run import Run

_POLL_SECONDS = 0.2
_CONNECT_SECONDS = 5.0
# Default ports of standalone masters and Connect servers.
_PORTS = {"spark": 7077, "sc": 15002}
# Environment variables of proxies that gRPC uses.
_GRPC_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
_PATHS_HELP = """
PATHS are segment files, partition directories, data directories, globs, or URLs of an object
store. In directories, only live .log segments are read.
"""
# Arguments that are not those of a function.
_OF_ALL_JOBS = ("paths", "master", "remote", "conf", "options")
# Of jobs that have another name than their command.
_FUNCTIONS = {"table": "write_table"}
_INSTALL = "this needs pyspark: pip install 'kafkascan[spark]'"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def spark() -> None:
    """Run jobs over the logs of many brokers on Spark.

    The manifest, a row per file or result, goes to stdout; findings and a summary go to stderr.
    """


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> Any:
    wrong = [value for value in values if "=" not in value]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


def _job(command: Command) -> Command:
    """Declare a job, whose columns are known by its name, with the options that all jobs share."""
    from kafkascan.spark.options.manifests import MANIFESTS

    extend_help(command, _PATHS_HELP)

    @functools.wraps(command)
    def call(run: Run, **arguments: Any) -> None:
        _run_job(run, command.__name__, arguments)

    options: list[Decorator] = [
        click.argument("paths", nargs=-1, required=True),
        with_run(
            MANIFESTS[command.__name__], rows="manifest",
            quiet="Print neither progress nor the summary.",
        ),
        option("--master URL", help="Spark master, such as local[*] or spark://host:7077."),
        option("--remote URL", help="Spark Connect server, such as sc://host."),
        option("--conf NAME=VALUE", multiple=True, callback=_pairs,
               help="Spark setting; may be given several times."),
        option("--option NAME=VALUE", "options", multiple=True, callback=_pairs,
               help="Option of the data source, such as topics=orders or where='producer_id == 7';"
               " may be given several times."),
    ]  # fmt: skip
    declared: Command = spark.command()(declare(call, *options))
    return declared


def _output(command: Command) -> Command:
    """Declare the options of jobs that write Parquet."""
    options: list[Decorator] = [
        option("--output FOLDER", required=True,
               help="Write to FOLDER: a directory that all executors share, or a URL of an object"
               " store."),
        option("--compression", default="zstd",
               help="Codec of the Parquet files: zstd, snappy, gzip, lz4, brotli or none."),
        option("--overwrite",
               help="Delete the files of an earlier export or catalog in FOLDER first, also of one"
               " that failed."),
        option("--resume",
               help="Keep the files in FOLDER that an earlier run finished from the same logs with"
               " the same options, and write the others."),
        option("--output-storage-options JSON", show_default="the data source's storageOptions",
               help="Options of the object store to write to."),
    ]  # fmt: skip
    return declare(command, *options)


@_job
def verify() -> None:
    """Verify the checksum of every batch.

    Prints a row per file.
    """


@_job
@_output
def catalog() -> None:
    """Write all batch headers to Parquet files.

    Prints a row per file written.
    """


@_job
@_output
def export() -> None:
    """Write records to Parquet files.

    Prints a row per file written. Each range of a segment becomes a file.
    """


@_job
@option("--target FOLDER", help="Write to FOLDER, into a subdirectory for each partition.")
@option("--next-to-segments", help="Write next to the segments of logs that no broker has open.")
@option("--force", help="Include the last (active) segment.")
@interval_bytes()
def rebuild_indexes() -> None:
    """Rebuild .index and .timeindex files as Kafka's recovery does."""


@_job
@option(
    "--table NAME",
    required=True,
    help="catalog.database.table, or delta.`/path`. With {topic} in the name, each topic has a"
    " table of its own.",
)
@option("--table-format FORMAT", default="iceberg", help="iceberg or delta.")
@option(
    "--upsert", help="Keep the last record of each key; a record whose value is null deletes it."
)
def table() -> None:
    """Write records to tables of Iceberg or Delta, each offset once.

    The next offsets stand in the commits of the table, where a later run continues. Records that
    are no rows go to the table NAME_problems. Prints a row per partition and commit.
    """


def _run_job(run: Run, job: str, arguments: dict[str, Any]) -> None:
    """Run a job, and print its results."""
    from kafkascan.format.texts import printable
    from kafkascan.spark.options.manifests import MANIFESTS

    try:
        from pyspark.errors import PySparkException

        from kafkascan.spark import jobs, readers  # noqa: F401 - refuses versions of pyspark
    except ModuleNotFoundError as error:
        raise click.UsageError(f"{_INSTALL} ({error})") from None
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    own = {name: one for name, one in arguments.items() if name not in _OF_ALL_JOBS}
    keywords = own | arguments["options"]
    try:
        _check_arguments(job, arguments)
        with _session(job, arguments) as session, _progress(run, session):
            report = getattr(jobs, _FUNCTIONS.get(job, job))(
                session, list(arguments["paths"]), **keywords
            )
    except (ValueError, TypeError, FileExistsError) as error:
        _fail(run, error, EXIT_USAGE)
        return
    except (OSError, PySparkException) as error:
        _fail(run, error, EXIT_UNREADABLE)
        return
    except Exception as error:
        java = getattr(error, "java_exception", None)
        if java is None:
            raise
        # Of py4j: PySpark has no class of its own for each exception, as of a missing catalog.
        _fail(run, RuntimeError(java.getMessage() or java.toString()), EXIT_UNREADABLE)
        return
    run.output.write_rows(MANIFESTS[job], report.manifest.to_pylist())
    for finding in report.findings:
        run.print(printable(finding))
    if not run.is_quiet:
        run.print(str(report))
    run.raise_exit_code(report.exit_code)


def _check_arguments(job: str, arguments: dict[str, Any]) -> None:
    """Raise `ValueError` for wrong arguments, before Spark takes seconds to start."""
    from kafkascan.spark.jobs.fleet_jobs import parse_compression, parse_job_options

    if job == "table":
        from kafkascan.spark.jobs.table_jobs import parse_table_options

        names = ("paths", "table", "table_format", "options")
        parse_table_options(*(arguments[name] for name in names))
        return
    parse_job_options(job, arguments["options"])
    if "compression" in arguments:
        parse_compression(arguments["compression"])


def _fail(run: Run, error: Exception, code: int) -> None:
    # Spark shows the whole traceback of a Python error in a task; its last line is the message.
    from kafkascan.format.texts import printable

    lines = [line for line in str(error).splitlines() if line.strip()] or [repr(error)]
    message = next((line for line in reversed(lines) if "Error" in line), lines[0])
    run.print(f"kafkascan: {printable(message.strip())}")
    run.raise_exit_code(code)


@contextmanager
def _session(job: str, arguments: dict[str, Any]) -> Iterator[Any]:
    """Start Spark, or use the session of spark-submit; stop it at the end."""
    from pyspark.sql import SparkSession

    from kafkascan.spark import recommended_conf

    builder = SparkSession.builder.appName(f"kafkascan {job}")
    conf = dict(arguments["conf"])
    master = arguments["master"] or conf.get("spark.master", "")
    if arguments["remote"]:
        builder = builder.remote(arguments["remote"])
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has its own settings
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        ours = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        conf = recommended_conf(ours | conf)
    if arguments["master"]:
        builder = builder.master(arguments["master"])
    for name, value in conf.items():
        builder = builder.config(name, value)
    _require_reachable(arguments["remote"] or master)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # of py4j, of gRPC or of pyspark, by master and version
        where = arguments["remote"] or master or "local"
        raise ConnectionError(f"Spark did not start at {where}: {_reason(error)}") from None
    try:
        yield session
    finally:
        session.stop()


def _require_reachable(url: str) -> None:
    """
    Raise `ConnectionError` if no standalone master or Connect server of a URL accepts connections.

    Spark itself tries for a minute, and a Connect client for several.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in _PORTS or (scheme == "sc" and any(map(os.environ.get, _GRPC_PROXIES))):
        return
    reason = "it names no host and port"
    for address in rest.partition("/")[0].split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, "", "")
        try:
            place = host.strip("[]"), int(port or _PORTS[scheme])
            socket.create_connection(place, _CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
        except ValueError:
            continue
        else:
            return
    raise ConnectionError(f"no Spark answers at {url}: {reason}")


def _reason(error: Exception) -> str:
    """Return the reason of an exception of Spark in one line."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = str(error if java is None else java.getMessage() or java)
    return next((line.strip() for line in text.splitlines() if line.strip()), repr(error))


@contextmanager
def _progress(run: Run, session: Any) -> Iterator[None]:
    """Show the number of finished tasks if stderr is a terminal."""
    tracker = None
    if sys.stderr.isatty() and not run.is_quiet and hasattr(session, "_jsc"):
        tracker = session.sparkContext.statusTracker()
    if tracker is None:
        yield
        return
    is_done = threading.Event()
    with run.progress("tasks"):

        def poll() -> None:
            while not is_done.wait(_POLL_SECONDS):
                found = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
                stages = [stage for stage in found if stage is not None]
                if stages:
                    total = sum(stage.numTasks for stage in stages)
                    run.show_progress(sum(stage.numCompletedTasks for stage in stages), total)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield
        finally:
            is_done.set()
            poller.join()
