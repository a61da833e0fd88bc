"""The command dump-log."""

from __future__ import annotations

from collections.abc import Callable

import click

from kafkascan.cli.shared_options import (
    option,
)
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
        command = option(f"--{name}", help=text)(command)
    return command


@click.command("dump-log", cls=_ToolCommand, context_settings={"help_option_names": ["--help"]})
@option("--files TEXT", help="Files to dump, with commas between them.")
@option("--deep-iteration", help="Print the records of each batch.")
@option("--print-data-log", help="Print keys and values of records.")
@option("--verify-index-only", help="Compare indexes with their logs only.")
@option("--index-sanity-check", help="Check indexes as a broker does at start.")
@option("--max-message-size BYTES", default=DumpOptions.max_message_size,
        help="Size of the largest batch that an index entry leads to.")  # fmt: skip
@option("--max-bytes BYTES", default=DumpOptions.max_bytes, help="Read so many bytes of each log.")
@option("--skip-record-metadata", help="Print records without offsets, timestamps and sizes.")
@option("--key-decoder-class CLASS", is_flag=False, flag_value=_STRING,
        help=f"Decoder of keys: {', '.join(ITEM_DECODERS)}, with or without a"
        " package.")  # fmt: skip
@option("--value-decoder-class CLASS", is_flag=False, flag_value=_STRING, help="Decoder of values.")
@_topic_decoders
@option("--format", "name", type=FORMATS,
        help="The lines of the tool, or one JSON object a line; the tool has no such"
        " option.")  # fmt: skip
@option("--version", help="Print the version of Kafka's tool with this output.")
def dump_log(arguments: list[str]) -> int:
    """Print files as Kafka's kafka-dump-log does, line for line.

    Options, output and exit codes are the tool's: 0 also with findings, 1 where the tool
    would end with an exception, also for wrong options.
    """
    return run_dump(arguments)
