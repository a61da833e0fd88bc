"""The command that prints what ``kafka-dump-log`` prints."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import click

from kafkascan.cli.run import READ_ERRORS
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import MAX_INT, DumpOptions
from kafkascan.dump_log.record_decoders import (
    BYTES_DECODERS,
    TOPIC_DECODERS,
    RecordDecoder,
    plain_decoder,
)

_OPTIONS = (
    "files", "deep-iteration", "print-data-log", "verify-index-only", "index-sanity-check",
    "max-message-size", "max-bytes", "skip-record-metadata", "key-decoder-class",
    "value-decoder-class", *TOPIC_DECODERS, "help",
)  # fmt: skip
_TOPIC_OPTIONS = {name.replace("-", "_"): decoder for name, decoder in TOPIC_DECODERS.items()}
_STRING = "StringDecoder"
# The tool's exit code wherever it ends early.
_EXIT_ENDED_EARLY = 1


def _whole_name(name: str) -> str:
    """Return the option that a name begins, if it is only one, as the tool accepts it."""
    found = [one for one in _OPTIONS if one.startswith(name.lstrip("-"))]
    dashes = name[: len(name) - len(name.lstrip("-"))]
    return name if name.lstrip("-") in _OPTIONS or len(found) != 1 else dashes + found[0]


def _bytes_decoder(name: str) -> Callable[[bytes], str]:
    decoder = BYTES_DECODERS.get(name.rpartition(".")[2])
    if decoder is None:
        known = ", ".join(BYTES_DECODERS)
        raise click.UsageError(f"{name} cannot be loaded without Java; known are {known}")
    return decoder


def _decoder(options: dict[str, Any], key: str | None, value: str | None) -> RecordDecoder:
    for name, decoder in _TOPIC_OPTIONS.items():
        if options[name]:
            return decoder
    return plain_decoder(_bytes_decoder(key or _STRING), _bytes_decoder(value or _STRING))


def _topic_decoders(command: Callable[..., int]) -> Callable[..., int]:
    for name in reversed(TOPIC_DECODERS):
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
    default=5 * 1024 * 1024,
    metavar="BYTES",
    show_default=True,
    help="Size of the largest batch that an index entry leads to.",
)
@click.option(
    "--max-bytes",
    default=MAX_INT,
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
    help=f"Decoder of keys: {', '.join(BYTES_DECODERS)}, with or without a package.",
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
    output = io.TextIOWrapper(sys.stdout.buffer, "utf-8", "replace", newline="\n")
    try:
        dump_files(files.split(","), _dump_options(options), output.write, sys.stderr.write)
    except (*READ_ERRORS, ValueError) as error:
        output.flush()
        print(f"kafkascan: {error}", file=sys.stderr)
        return _EXIT_ENDED_EARLY
    finally:
        output.detach()
    return 0


def _dump_options(options: dict[str, Any]) -> DumpOptions:
    classes = (options["key_decoder_class"], options["value_decoder_class"])
    has_decoder = classes != (None, None) or any(options[one] for one in _TOPIC_OPTIONS)
    prints_data = options["print_data_log"] or has_decoder
    return DumpOptions(
        is_deep=options["deep_iteration"] or prints_data,
        prints_data=prints_data,
        skips_metadata=options["skip_record_metadata"],
        verifies_index_only=options["verify_index_only"],
        checks_index_only=options["index_sanity_check"],
        max_message_size=options["max_message_size"],
        max_bytes=options["max_bytes"],
        decode=_decoder(options, *classes),
    )
