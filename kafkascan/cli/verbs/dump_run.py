"""Run dump-log, without click: importing that takes as long as printing 100 MB."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kafkascan.cli.verbs.java_options import (
    Argument,
    OptionsError,
    ParsedOptions,
    parse_options,
)
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import (
    ITEM_DECODERS,
    PRINT_TEXT,
    TOPIC_OPTIONS,
    DumpOptions,
    ItemDecoder,
    RecordDecoder,
)
from kafkascan.format.errors import KafkaScanError

FORMATS = ("text", "jsonl")
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
_DECODED = (".log", ".checkpoint")
# The tool's exit code wherever it ends early.
_EXIT_ENDED_EARLY = 1


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether the help is asked for, which counts before all other options."""
    try:
        return parse_options(list(arguments), _OPTIONS).has("help")
    except OptionsError:
        return False


def run_dump(arguments: Sequence[str]) -> int:
    """Dump what a command line asks for; return the exit code."""
    try:
        options = parse_options(list(arguments), _OPTIONS)
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


def _split(files: str) -> list[str]:
    """Return the names of files, as Java's ``split`` does: without the last ones if empty."""
    names = files.split(",")
    while len(names) > 1 and not names[-1]:
        names.pop()
    return [] if names == [""] and files else names


def _format(options: ParsedOptions) -> str:
    name = options.value("format") or FORMATS[0]
    if name not in FORMATS:
        raise OptionsError(f"option format is one of {', '.join(FORMATS)}, not {name!r}")
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
