"""The verb that writes a page about logs."""

from __future__ import annotations

from pathlib import Path

import click

import kafkascan as ks
from kafkascan.cli.options import InputPath, with_threads
from kafkascan.cli.session import (
    EXIT_CLEAN,
    EXIT_FINDINGS,
    EXIT_UNREADABLE,
    READ_ERRORS,
    Report,
    tell_on_stderr,
)


@click.command()
@click.argument("path", type=InputPath())
@click.option(
    "-o", "--output", type=InputPath(), required=True, metavar="FILE",
    help="The page; it appears when it is whole.",
)  # fmt: skip
@click.option("--title", help="Of the page; by default PATH.")
@click.option("--verify/--no-verify", default=True, show_default=True,
              help="Compare the checksums of all batches, or read headers only.")  # fmt: skip
@click.option("--advice", is_flag=True, help="Compress samples with other codecs, too.")
@with_threads
@click.pass_context
def report(
    context: click.Context,
    /,
    path: Path,
    output: Path,
    title: str | None,
    verify: bool,
    advice: bool,
    threads: int | None,
) -> None:
    """Write one page about logs: a summary, findings, plots, tables.

    PATH is a broker's data dir, the folder of a partition, a tar of them, or a segment file.
    The page needs no network and runs no scripts. Exit code 1 says that it lists warnings or
    errors.
    """
    try:
        page = ks.build_report(path, title=title, verify=verify, advice=advice, threads=threads)
    except ImportError as error:
        raise click.UsageError(str(error)) from None
    except READ_ERRORS as error:
        told = Report(lambda size: None)
        told.unreadable(str(path), error)
        tell_on_stderr(told)
        context.exit(EXIT_UNREADABLE)
    page.write(output)
    context.exit(EXIT_CLEAN if page.audit.is_healthy else EXIT_FINDINGS)
