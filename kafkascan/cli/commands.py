"""The command group, and the exit of a command: exit codes, errors, interrupts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

import kafkascan as ks
from kafkascan.cli.run import EXIT_UNREADABLE, EXIT_USAGE
from kafkascan.cli.verbs.index_commands import index
from kafkascan.cli.verbs.log_commands import advise, audit, count, diff, producers, report, txns
from kafkascan.cli.verbs.record_commands import records
from kafkascan.cli.verbs.recovery_commands import recover, salvage
from kafkascan.cli.verbs.rewrite_commands import convert, restamp, scrub
from kafkascan.cli.verbs.segment_commands import batches, dump_log, info, verify
from kafkascan.cli.verbs.spark_commands import spark


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(ks.__version__, prog_name="kafkascan")
def cli() -> None:
    """Read Apache Kafka's segment files directly: no broker, no JVM.

    Commands read segment files (.log, also .log.deleted, .log.cleaned and .log.swap files, and
    KRaft's .checkpoint files), partition directories, a broker's data directories, and tar
    archives of directories, which are not unpacked. Of directories and archives, they read the
    segments that a broker would load. With --all, commands about files (info, verify, batches,
    records, index check) read every segment file.

    Rows go to stdout, findings to stderr. Exit codes: 0 no findings; 1 findings, such as
    damage or a torn tail; 2 wrong usage; 3 unreadable input, or nothing there to read.
    """


for command in (
    info, verify, batches, records, dump_log, index, audit, txns, producers, count, diff, report,
    advise, recover, salvage, convert, restamp, scrub, spark,
):  # fmt: skip
    cli.add_command(command)


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    try:
        code = cli.main(
            None if arguments is None else list(arguments),
            prog_name="kafkascan",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except click.Abort:
        return 130
    except OSError as error:
        return _cannot_write(error)
    return int(code or 0)


def _cannot_write(error: OSError) -> int:
    """Report that the output cannot be written, and discard what is left in stdout's buffer."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    place = f" {error.filename}" if error.filename else ""
    print(f"kafkascan: cannot write{place}: {error.strerror}", file=sys.stderr)
    return EXIT_UNREADABLE
