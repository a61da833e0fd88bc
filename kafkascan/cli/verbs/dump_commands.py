"""The command dump-log."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from kafkascan.cli.verbs.java_options import (
    Argument,
    OptionsError,
    ParsedOptions,
    parse_options,
)
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import TOPIC_OPTIONS, DumpOptions
from kafkascan.dump_log.lines.item_decoders import (
    ITEM_DECODERS,
    PRINT_TEXT,
    ItemDecoder,
    RecordDecoder,
)
from kafkascan.format.errors import KafkaScanError

_FLAGS = (
    "deep-iteration", "print-data-log", "verify-index-only", "index-sanity-check",
    "skip-record-metadata", *TOPIC_OPTIONS, "help", "version",
)  # fmt: skip
_OPTIONS = {
    **dict.fromkeys(_FLAGS, Argument.NONE),
    **dict.fromkeys(("files", "max-message-size", "max-bytes", "format"), Argument.REQUIRED),
    **dict.fromkeys(("key-decoder-class", "value-decoder-class"), Argument.OPTIONAL),
}
# The version of Kafka whose tool prints the same.
_KAFKA_VERSION = "4.3.1"
_FORMATS = ("text", "jsonl")
_DECODED = (".log", ".checkpoint")
_STRING = "StringDecoder"
# The tool's exit code wherever it ends early.
_EXIT_ENDED_EARLY = 1


class _ToolCommand(click.Command):
    """A command that reads its options as Kafka's tools do; click prints the help."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Parse the options of the tool; the help counts before all others."""
        try:
            options = parse_options(arguments, _OPTIONS)
        except OptionsError as error:
            context.params = {"options": error}
            return []
        if options.has("help"):
            return super().parse_args(context, ["--help"])
        context.params = {"options": options}
        return []


def _item_decoder(name: str | None) -> ItemDecoder:
    if name is None:
        return PRINT_TEXT
    decoder = ITEM_DECODERS.get(name.rpartition(".")[2])
    if decoder is None:
        known = ", ".join(ITEM_DECODERS)
        raise OptionsError(f"{name} cannot be loaded without Java; known are {known}")
    return decoder


def _topic_decoder(options: ParsedOptions) -> RecordDecoder | None:
    chosen = [name for name in TOPIC_OPTIONS if options.has(name)]
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
    type=click.Choice(_FORMATS),
    help="The lines of the tool, or one JSON object a line; the tool has no such option.",
)
@click.option("--version", is_flag=True, help="Print the version of Kafka's tool with this output.")
def dump_log(options: ParsedOptions | OptionsError) -> int:
    """Print files as Kafka's kafka-dump-log does, line for line.

    Options, output and exit codes are the tool's: 0 also with findings, 1 where the tool
    would end with an exception, also for wrong options.
    """
    try:
        if isinstance(options, OptionsError):
            raise options
        if options.has("version"):
            print(_KAFKA_VERSION)
            return 0
        if not options.has("files"):
            raise OptionsError('Missing required argument "[files]"')
        files = _split(options.value("files") or "")
        _dump(files, _dump_options(options, files), _format(options))
    except (KafkaScanError, OSError, ValueError) as error:
        print(f"kafkascan: {error}", file=sys.stderr)
        return _EXIT_ENDED_EARLY
    return 0


def _split(files: str) -> list[str]:
    """Return the names of files, as Java's ``split`` does: without the last ones if empty."""
    names = files.split(",")
    while len(names) > 1 and not names[-1]:
        names.pop()
    return [] if names == [""] and files else names


def _format(options: ParsedOptions) -> str:
    name = options.value("format") or _FORMATS[0]
    if name not in _FORMATS:
        raise OptionsError(f"option format is one of {', '.join(_FORMATS)}, not {name!r}")
    return name


def _dump(files: list[str], options: DumpOptions, name: str) -> None:
    # Java writes UTF-8 and no carriage returns, whatever the terminal is.
    output = sys.stdout.buffer
    try:
        if name == "jsonl":
            from kafkascan.dump_log.json_dump import dump_as_json

            dump_as_json(files, options, output.write)
        else:
            dump_files(files, options, output.write, sys.stderr.write)
    finally:
        output.flush()


def _dump_options(options: ParsedOptions, files: list[str]) -> DumpOptions:
    """Return what is printed; as in the tool, a value counts if a file needs it."""
    has_log = any(name.endswith(_DECODED) for name in files)
    has_index = any(name.endswith(".index") for name in files)
    decode = _topic_decoder(options)
    key, value = (
        _item_decoder(options.value(name)) if has_log and decode is None else PRINT_TEXT
        for name in ("key-decoder-class", "value-decoder-class")
    )
    max_bytes, max_message_size = DumpOptions.max_bytes, DumpOptions.max_message_size
    if has_log:
        max_bytes = options.integer("max-bytes", max_bytes)
    if has_index:
        max_message_size = options.integer("max-message-size", max_message_size)
    printing = ("print-data-log", "key-decoder-class", "value-decoder-class", *TOPIC_OPTIONS)
    prints_data = any(options.has(name) for name in printing)
    return DumpOptions(
        is_deep=options.has("deep-iteration") or prints_data,
        prints_data=prints_data,
        skips_metadata=options.has("skip-record-metadata"),
        verifies_index_only=options.has("verify-index-only"),
        checks_index_only=options.has("index-sanity-check"),
        max_message_size=max_message_size,
        max_bytes=max_bytes,
        decode=decode,
        key=key,
        value=value,
    )
