"""The command dump-log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import TOPIC_OPTIONS, DumpOptions
from kafkascan.dump_log.item_decoders import (
    ITEM_DECODERS,
    PRINT_TEXT,
    ItemDecoder,
    RecordDecoder,
)
from kafkascan.format.errors import KafkaScanError

_DUMP_OPTIONS = (
    "files", "deep-iteration", "print-data-log", "verify-index-only", "index-sanity-check",
    "max-message-size", "max-bytes", "skip-record-metadata", "key-decoder-class",
    "value-decoder-class", *TOPIC_OPTIONS, "help",
)  # fmt: skip
_STRING = "StringDecoder"
# The tool's exit code wherever it ends early.
_EXIT_ENDED_EARLY = 1


def _whole_name(name: str) -> str:
    """Return the option that a name begins, if it is only one, as the tool accepts it."""
    found = [one for one in _DUMP_OPTIONS if one.startswith(name.lstrip("-"))]
    dashes = name[: len(name) - len(name.lstrip("-"))]
    return name if name.lstrip("-") in _DUMP_OPTIONS or len(found) != 1 else dashes + found[0]


def _item_decoder(name: str | None) -> ItemDecoder:
    if name is None:
        return PRINT_TEXT
    decoder = ITEM_DECODERS.get(name.rpartition(".")[2])
    if decoder is None:
        known = ", ".join(ITEM_DECODERS)
        raise click.UsageError(f"{name} cannot be loaded without Java; known are {known}")
    return decoder


def _topic_decoder(options: dict[str, Any]) -> RecordDecoder | None:
    chosen = [name for name in TOPIC_OPTIONS if options[name.replace("-", "_")]]
    if not chosen:
        return None
    from kafkascan.dump_log.topic_decoders import TOPIC_DECODERS  # with all schemas

    return TOPIC_DECODERS[chosen[0]]


def _topic_decoders(command: Callable[..., int]) -> Callable[..., int]:
    for name in reversed(TOPIC_OPTIONS):
        topic = name.removesuffix("-decoder").replace("-", " ")
        text = f"Print records in words: of the {topic}. Implies --print-data-log."
        command = click.option(f"--{name}", is_flag=True, help=text)(command)
    return command


@click.command(
    "dump-log",
    context_settings={"token_normalize_func": _whole_name, "help_option_names": ["--help"]},
)
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
def dump_log(files: str | None, **options: Any) -> int:
    """Print files as Kafka's kafka-dump-log does, line for line.

    Options, output and exit codes are the tool's: 0 also with findings, 1 where the tool
    would end with an exception. A name of an option may be shortened.
    """
    if files is None:
        print('Missing required argument "[files]"', file=sys.stderr)
        return _EXIT_ENDED_EARLY
    # Java writes UTF-8 and no carriage returns, whatever the terminal is.
    output = sys.stdout.buffer
    try:
        dump_files(files.split(","), _dump_options(options), output.write, sys.stderr.write)
    except (KafkaScanError, OSError, ValueError) as error:
        output.flush()
        print(f"kafkascan: {error}", file=sys.stderr)
        return _EXIT_ENDED_EARLY
    return 0


def _dump_options(options: dict[str, Any]) -> DumpOptions:
    key, value = options["key_decoder_class"], options["value_decoder_class"]
    decode = _topic_decoder(options)
    has_decoder = decode is not None or (key, value) != (None, None)
    prints_data = options["print_data_log"] or has_decoder
    return DumpOptions(
        is_deep=options["deep_iteration"] or prints_data,
        prints_data=prints_data,
        skips_metadata=options["skip_record_metadata"],
        verifies_index_only=options["verify_index_only"],
        checks_index_only=options["index_sanity_check"],
        max_message_size=options["max_message_size"],
        max_bytes=options["max_bytes"],
        decode=decode,
        key=_item_decoder(key),
        value=_item_decoder(value),
    )
