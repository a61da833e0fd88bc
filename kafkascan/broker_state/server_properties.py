"""Read a broker's ``server.properties``: its data directories, and settings that loading uses."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import read_regular, require_side_file_size

# Skips blank lines, and takes a comment or a logical line: one that ends with a backslash
# continues in the next; before its first character, it may still become a comment. What a
# pattern may skip or repeat is never tried again: linear time.
_LINE = re.compile(
    r"(?:[ \t\f\r\n]+|\\(?:\r\n|\r|\n))*"
    r"(?:[#!][^\r\n]*|((?:[^\\\r\n]+|\\(?:\r\n|.|\Z))*))",
    re.DOTALL,
)
_JOINED = re.compile(r"(\\[^\r\n])|\\(?:\r\n|\r|\n|\Z)[ \t\f]*", re.DOTALL)
_PROPERTY = re.compile(r"((?:[^\\=: \t\f]+|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A file without any of them is another file: a broker needs some of them to start.
_OF_BROKERS = (
    "broker.id", "controller.", "listeners", "log.", "metadata.log.", "node.id", "process.roles",
    "producer.id.", "remote.log.", "zookeeper.connect",
)  # fmt: skip
_LARGEST_FILE = 1 << 20
_DEFAULT_LOG_DIR = "/tmp/kafka-logs"


@dataclass(frozen=True)
class ServerProperties:
    """
    Settings of a broker that decide how it loads logs; None for settings that are not in the file.

    Attributes
    ----------
    log_dirs : list of Path
        ``log.dirs``, or ``log.dir``.
    metadata_dir : Path or None
        ``metadata.log.dir``.
    interval_bytes : int or None
        ``log.index.interval.bytes``.
    producer_expiration_ms : int or None
        ``producer.id.expiration.ms``.
    is_compacted : bool
        Whether ``log.cleanup.policy`` contains ``compact``.
    has_remote_storage : bool
        ``remote.log.storage.system.enable``.
    """

    log_dirs: list[Path]
    metadata_dir: Path | None
    interval_bytes: int | None
    producer_expiration_ms: int | None
    is_compacted: bool
    has_remote_storage: bool


def read_server_properties(path: str | os.PathLike[str], /) -> ServerProperties:
    """
    Read a broker's ``server.properties``.

    Relative directories are relative to the current one, as for a broker.

    Parameters
    ----------
    path : path

    Returns
    -------
    ServerProperties

    Raises
    ------
    CorruptCheckpointError
        If a setting is not a number where Kafka requires one, no data directory is named, or
        the file has no setting of a broker: it is another file.
    OSError
        Also if the file has more than 1 MiB: it is another file.
    """
    # Kafka loads the file as a stream of bytes, which Java reads as Latin-1.
    data = read_regular(path)
    require_side_file_size(len(data), os.fspath(path), _LARGEST_FILE)
    found = parse_properties(data.decode("latin-1"))
    if not any(name.startswith(_OF_BROKERS) for name in found):
        reason = "no setting of a broker is in the file, such as node.id or log.dirs"
        raise CorruptCheckpointError(os.fspath(path), 0, None, reason, "NOT_PROPERTIES")
    dirs = found.get("log.dirs", "").strip() or found.get("log.dir", _DEFAULT_LOG_DIR)
    log_dirs = [Path(one) for one in dict.fromkeys(map(str.strip, dirs.split(","))) if one]
    if not log_dirs:
        reason = "log.dirs or log.dir names no directory"
        raise CorruptCheckpointError(os.fspath(path), 0, None, reason, "BAD_PROPERTY")
    metadata_dir = found.get("metadata.log.dir", "").strip()
    return ServerProperties(
        log_dirs=log_dirs,
        metadata_dir=Path(metadata_dir) if metadata_dir else None,
        interval_bytes=_number(found, "log.index.interval.bytes", path),
        producer_expiration_ms=_number(found, "producer.id.expiration.ms", path),
        is_compacted="compact" in found.get("log.cleanup.policy", ""),
        has_remote_storage=_is_true(found.get("remote.log.storage.system.enable", "")),
    )


def _number(properties: dict[str, str], name: str, path: str | os.PathLike[str]) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    number = text.strip()
    if not (number.isascii() and number.isdecimal() and int(number[:11]) < 1 << 31):
        reason = f"{name} is {text!r}, not a number from 0 to 2147483647"
        raise CorruptCheckpointError(os.fspath(path), 0, None, reason, "BAD_PROPERTY")
    return int(number)


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def parse_properties(text: str, /) -> dict[str, str]:
    """
    Parse a properties file as ``java.util.Properties.load`` does.

    Parameters
    ----------
    text : str

    Returns
    -------
    dict
        Of a name that occurs repeatedly, the last value. An empty name is left out.
    """
    found = {}
    for line in filter(None, _LINE.findall(text)):
        match = _PROPERTY.fullmatch(_joined(line) if "\\" in line else line)
        assert match is not None  # the value takes any text
        name, value = match.groups()
        found[_unescaped(name)] = _unescaped(value)
    found.pop("", None)
    return found


def _joined(line: str) -> str:
    """Return a logical line without the ends, and the blanks at the start, of natural lines."""
    if "\n" not in line and "\r" not in line and not line.endswith("\\"):
        return line
    return _JOINED.sub(lambda match: match[1] or "", line)


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
