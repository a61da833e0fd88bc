"""Run dump-log, without click: importing that takes as long as printing 100 MB."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence

from kafkascan.cli.exit_codes import print_message
from kafkascan.cli.terminal import stdout_for_values
from kafkascan.dump_log.dump_options import (
    ITEM_DECODERS,
    PRINT_TEXT,
    TOPIC_OPTIONS,
    DumpOptions,
    ItemDecoder,
    RecordDecoder,
)
from kafkascan.format.errors import KafkaScanError

MAX_INT = 2**31 - 1
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Argument(enum.Enum):
    """Whether an option takes an argument."""

    NONE = enum.auto()
    REQUIRED = enum.auto()
    OPTIONAL = enum.auto()


class OptionsError(ValueError):
    """A command line that the tool rejects."""


class ParsedOptions:
    """
    The options of a command line.

    Parameters
    ----------
    values : dict of str to list of str
        The arguments of each option that is set, in their order.
    """

    def __init__(self, values: Mapping[str, Sequence[str]]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        """Return whether an option is set, with or without an argument."""
        return name in self._values

    def value(self, name: str) -> str | None:
        """
        Return the argument of an option; None without one.

        Raises
        ------
        OptionsError
            If the option has several arguments.
        """
        found = self._values.get(name, ())
        if len(found) > 1:
            raise OptionsError(f"option {name} has {len(found)} arguments, not one")
        return found[0] if found else None

    def integer(self, name: str, default: int) -> int:
        """
        Return the argument of an option as Java's ``Integer``.

        Raises
        ------
        OptionsError
        """
        text = self.value(name)
        if text is None:
            return default
        if not _INTEGER.fullmatch(text) or not -MAX_INT - 1 <= int(text) <= MAX_INT:
            raise OptionsError(f"option {name} needs an integer of 32 bits, not {text!r}")
        return int(text)


def parse_options(arguments: Sequence[str], known: Mapping[str, Argument]) -> ParsedOptions:
    """
    Parse a command line as joptsimple does.

    Names may follow one dash or two, arguments ``=`` or a space. An argument of an option without
    one is ignored, and so is everything that belongs to no option. A required argument may
    begin with a dash, an optional one may not.

    Parameters
    ----------
    arguments : sequence of str
    known : dict of str to Argument

    Returns
    -------
    ParsedOptions

    Raises
    ------
    OptionsError
        If an option is not known, or its argument is missing.
    """
    found: dict[str, list[str]] = {}
    rest = list(reversed(arguments))
    while rest:
        token = rest.pop()
        if token == "--":
            break
        if not _is_option(token):
            continue
        name, has_argument, argument = token[2 if token[1] == "-" else 1 :].partition("=")
        if name not in known:
            raise OptionsError(f"{name} is not a recognized option")
        values = found.setdefault(name, [])
        if known[name] is Argument.NONE:
            continue
        if has_argument:
            values.append(argument)
        elif known[name] is Argument.REQUIRED:
            if not rest:
                raise OptionsError(f"option {name} requires an argument")
            values.append(rest.pop())
        elif rest and not _is_option(rest[-1]):
            values.append(rest.pop())
    return ParsedOptions(found)


def _is_option(token: str) -> bool:
    return token.startswith("-") and token != "-"


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
_KAFKA_VERSION = "4.4.0"
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
        if isinstance(error, OSError) and error.filename is None:
            raise  # stdout cannot be written
        print_message(f"kafkascan: {error}")
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
    stdout = stdout_for_values()
    output = stdout.buffer
    try:
        if name == "jsonl":
            from kafkascan.dump_log.json_dump import dump_as_json

            dump_as_json(files, options, output.write)
        else:
            from kafkascan.dump_log.dump_files import dump_files

            dump_files(files, options, output.write, _complain)
    finally:
        output.flush()


def _complain(text: str) -> None:
    if text:
        print_message(text.removesuffix("\n"))


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
