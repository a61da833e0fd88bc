"""Read a broker's ``server.properties``: its data directories, and settings that loading uses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import read_regular

_PROPERTY = re.compile(
    r"(?P<name>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# A file without any of them is another file: a broker needs some of them to start.
_OF_BROKERS = (
    "broker.id", "controller.", "listeners", "log.", "metadata.log.", "node.id", "process.roles",
    "producer.id.", "remote.log.", "zookeeper.connect",
)  # fmt: skip
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
        If a setting is not a number where Kafka requires one, or the file has no setting of a
        broker: it is another file.
    OSError
    """
    # Kafka loads the file as a stream of bytes, which Java reads as Latin-1.
    found = parse_properties(read_regular(path).decode("latin-1"))
    if not any(name.startswith(_OF_BROKERS) for name in found):
        reason = "no setting of a broker is in the file, such as node.id or log.dirs"
        raise CorruptCheckpointError(os.fspath(path), 0, None, reason, "NOT_PROPERTIES")
    dirs = found.get("log.dirs", "").strip() or found.get("log.dir", _DEFAULT_LOG_DIR)
    metadata_dir = found.get("metadata.log.dir", "").strip()
    return ServerProperties(
        log_dirs=[Path(one.strip()) for one in dirs.split(",") if one.strip()],
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
    for line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        assert match is not None  # the value takes any text
        found[_unescaped(match["name"])] = _unescaped(match["value"])
    found.pop("", None)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments; a line that ends with a backslash continues in the next."""
    so_far = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if not so_far and line.startswith(("#", "!")):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        is_continued = backslashes % 2 == 1
        so_far += line[:-1] if is_continued else line
        if so_far and not is_continued:
            yield so_far
            so_far = ""
    if so_far:
        yield so_far


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(character, text)
