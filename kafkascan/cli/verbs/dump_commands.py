"""The command dump-log."""

from __future__ import annotations

from collections.abc import Callable

import click

from kafkascan.cli.verbs.dump_run import FORMATS, asks_for_help, run_dump
from kafkascan.dump_log.dump_options import ITEM_DECODERS, TOPIC_OPTIONS, DumpOptions

_STRING = "StringDecoder"


class _ToolCommand(click.Command):
    """A command that reads its options as Kafka's tools do; click prints the help."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Leave the arguments to `run_dump`, except the help."""
        if asks_for_help(arguments):
            return super().parse_args(context, ["--help"])
        context.params = {"arguments": arguments}
        return []


def _topic_decoders(command: Callable[..., int]) -> Callable[..., int]:
    for name in reversed(TOPIC_OPTIONS):
        topic = name.removesuffix("-decoder").replace("-", " ")
        text = f"Print records in words: of the {topic}. Implies --print-data-log."
        command = click.option(f"--{name}", is_flag=True, help=text)(command)
    return command


@click.command("dump-log", cls=_ToolCommand, context_settings={"help_option_names": ["--help"]})
@click.option("--files", help="Files to dump, with commas between them.")
@click.option("--deep-iteration", is_flag=True, help="Print the records of each batch.")
@click.option("--print-data-log", is_flag=True, help="Print keys and values of records.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with their logs only.")
@click.option("--index-sanity-check", is_flag=True, help="Check indexes as a broker does at start.")
@click.option(
    "--max-message-size",
    default=DumpOptions.max_message_size,
    metavar="BYTES",
    show_default=True,
    help="Size of the largest batch that an index entry leads to.",
)
@click.option(
    "--max-bytes",
    default=DumpOptions.max_bytes,
    metavar="BYTES",
    show_default=True,
    help="Read so many bytes of each log.",
)
@click.option(
    "--skip-record-metadata",
    is_flag=True,
    help="Print records without offsets, timestamps and sizes.",
)
@click.option(
    "--key-decoder-class",
    is_flag=False,
    flag_value=_STRING,
    metavar="CLASS",
    help=f"Decoder of keys: {', '.join(ITEM_DECODERS)}, with or without a package.",
)
@click.option(
    "--value-decoder-class",
    is_flag=False,
    flag_value=_STRING,
    metavar="CLASS",
    help="Decoder of values.",
)
@_topic_decoders
@click.option(
    "--format",
    "name",
    type=click.Choice(FORMATS),
    help="The lines of the tool, or one JSON object a line; the tool has no such option.",
)
@click.option("--version", is_flag=True, help="Print the version of Kafka's tool with this output.")
def dump_log(arguments: list[str]) -> int:
    """Print files as Kafka's kafka-dump-log does, line for line.

    Options, output and exit codes are the tool's: 0 also with findings, 1 where the tool
    would end with an exception, also for wrong options.
    """
    return run_dump(arguments)
