"""Read and write the text files that brokers keep beside logs: checkpoints and metadata."""

from __future__ import annotations

import base64
import binascii
import io
import itertools
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kafkascan.format.arguments import require_items, require_type
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.folders import read_regular, require_side_file_size

PARTITION_METADATA = "partition.metadata"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"

_CHECKPOINT_VERSION = 0
_METADATA_VERSION = 0
# Brokers write up to 270 bytes for each partition or leader epoch, and less than 1 KiB of
# properties.
_LARGEST_CHECKPOINT = 1 << 24
_LARGEST_PROPERTIES = 1 << 16
# Numbers as Java parses them: no underscores, no spaces.
_DIGITS = "[+-]?0*[0-9]{1,19}"
_NUMBER = re.compile(_DIGITS)
# Lines as Java's ``split("\\s+")`` takes them: blanks may be at the end, not at the beginning.
_EPOCH_LINE = re.compile(rf"({_DIGITS})\s+({_DIGITS})\s*", re.ASCII)
_OFFSET_LINE = re.compile(rf"(\S+)\s+({_DIGITS})\s+({_DIGITS})\s*", re.ASCII)


class LeaderEpoch(NamedTuple):
    """
    A leader epoch and the first offset that was written in it.

    Attributes
    ----------
    epoch : int
    start_offset : int
    """

    epoch: int
    start_offset: int


@dataclass(frozen=True)
class PartitionMetadata:
    """
    The content of a ``partition.metadata`` file.

    Attributes
    ----------
    version : int
    topic_id : str
        As Kafka writes it: 22 characters of base64.
    """

    version: int
    topic_id: str

    @property
    def topic_uuid(self) -> uuid.UUID:
        """The topic id as a UUID."""
        return uuid.UUID(bytes=base64.urlsafe_b64decode(self.topic_id + "=="))


@dataclass(frozen=True)
class CleanShutdown:
    """
    The content of a ``.kafka_cleanshutdown`` file: the broker closed its logs.

    Attributes
    ----------
    version : int
    broker_epoch : int
        -1 if the file does not contain it, as with old brokers.
    """

    version: int
    broker_epoch: int


# ---- numbered lines: leader epochs, offsets of partitions ------------------------------------


def read_leader_epochs(path: str | os.PathLike[str], /) -> list[LeaderEpoch]:
    """
    Read a ``leader-epoch-checkpoint`` file.

    Returns
    -------
    list of LeaderEpoch
        In the order of the file, which is ascending if a broker wrote it.

    Raises
    ------
    CorruptCheckpointError
        If Kafka would refuse the file (``CheckpointFile``, ``LeaderEpochCheckpointFile``).
    SideFileTooLargeError
        If it has more than 16 MiB.
    OSError
    """
    return parse_leader_epochs(read_regular(path), os.fspath(path))


def parse_leader_epochs(data: bytes, path: str) -> list[LeaderEpoch]:
    """Parse the bytes of the file; as `read_leader_epochs`."""
    return [LeaderEpoch(*entry) for entry in _entries(data, path, _EPOCH_LINE)]


def write_leader_epochs(path: str | os.PathLike[str], epochs: Iterable[LeaderEpoch], /) -> None:
    """
    Write a ``leader-epoch-checkpoint`` file atomically; an existing file is replaced.

    Raises
    ------
    CorruptCheckpointError
        If Kafka would refuse the file; nothing is written.
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
    require_items(tuple, epochs=(epochs := list(epochs)))
    data = leader_epochs_file(epochs)
    parse_leader_epochs(data, os.fspath(path))
    _write(Path(path), data)


def leader_epochs_file(epochs: Iterable[LeaderEpoch]) -> bytes:
    """Return the bytes of a ``leader-epoch-checkpoint`` file."""
    return _checkpoint_file(f"{epoch} {start}" for epoch, start in epochs)


def read_offset_checkpoint(path: str | os.PathLike[str], /) -> dict[tuple[str, int], int]:
    """
    Read a checkpoint file with an offset of each partition of a data dir.

    Parameters
    ----------
    path : path
        Of ``recovery-point-offset-checkpoint``, ``log-start-offset-checkpoint``,
        ``replication-offset-checkpoint`` or ``cleaner-offset-checkpoint``.

    Returns
    -------
    dict
        By topic and partition.

    Raises
    ------
    CorruptCheckpointError
        If Kafka would refuse the file (``CheckpointFile``, ``OffsetCheckpointFile``).
    SideFileTooLargeError
        If it has more than 16 MiB.
    OSError
    """
    return parse_offset_checkpoint(read_regular(path), os.fspath(path))


def parse_offset_checkpoint(data: bytes, path: str) -> dict[tuple[str, int], int]:
    """Parse the bytes of the file; as `read_offset_checkpoint`."""
    entries = _entries(data, path, _OFFSET_LINE)
    return {(topic, partition): offset for topic, partition, offset in entries}


def write_offset_checkpoint(
    path: str | os.PathLike[str], offsets: Mapping[tuple[str, int], int], /
) -> None:
    """
    Write a checkpoint file with an offset of each partition atomically.

    An existing file is replaced.

    Raises
    ------
    CorruptCheckpointError
        If Kafka would refuse the file; nothing is written.
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a mapping, not {type(offsets).__name__}")
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    data = _checkpoint_file(lines)
    parse_offset_checkpoint(data, os.fspath(path))
    _write(Path(path), data)


def _entries(data: bytes, path: str, entry: re.Pattern[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the int and the long of each entry, after the words before them."""
    require_side_file_size(len(data), path, _LARGEST_CHECKPOINT)
    version, expected, count = _CHECKPOINT_VERSION, 0, 0
    for number, line in enumerate(_iter_lines(data, path)):
        if number == 0:
            version = _number(path, data, number, line)
            if version != _CHECKPOINT_VERSION:
                reason = f"version {version} is not {_CHECKPOINT_VERSION}"
                raise _bad_line(path, data, number, reason)
        elif number == 1:
            expected = _number(path, data, number, line)
        else:
            found = entry.fullmatch(line)
            *words, first, second = found.groups() if found else (1 << 31, 0)
            first, second = int(first), int(second)
            if not -(1 << 31) <= first < 1 << 31 or not -(1 << 63) <= second < 1 << 63:
                raise _bad_line(path, data, number, f"{line!r} is not an entry")
            count += 1
            yield *words, first, second
    if count != expected:
        reason = f"the entry count is {expected}, but there are {count} entries"
        raise _bad_line(path, data, 1, reason)


def _checkpoint_file(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in [_CHECKPOINT_VERSION, len(lines), *lines]).encode()


# ---- partition.metadata, meta.properties, .kafka_cleanshutdown -------------------------------


def read_partition_metadata(path: str | os.PathLike[str], /) -> PartitionMetadata:
    """
    Read a ``partition.metadata`` file (KIP-516).

    Raises
    ------
    CorruptCheckpointError
        If Kafka would refuse the file (``PartitionMetadataFile``).
    SideFileTooLargeError
        If it has more than 64 KiB: brokers write less than 1 KiB.
    OSError
    """
    return parse_partition_metadata(read_regular(path), os.fspath(path))


def parse_partition_metadata(data: bytes, path: str) -> PartitionMetadata:
    """Parse the bytes of the file; as `read_partition_metadata`."""
    require_side_file_size(len(data), path, _LARGEST_PROPERTIES)
    found = {}
    for number, line in enumerate(_iter_lines(data, path)):
        name, colon, value = line.partition(":")
        if not colon:
            raise _bad_line(path, data, number, f"{line!r} is not an entry")
        if name.strip() in ("version", "topic_id"):
            found[name.strip()] = value.strip()
    version, topic_id = found.get("version", ""), found.get("topic_id", "")
    if not _is_int(version) or int(version) < _METADATA_VERSION:
        raise _bad_line(path, data, 0, f"{version!r} is not a version")
    if not _is_uuid(topic_id):
        raise _bad_line(path, data, 0, f"{topic_id!r} is not a topic id")
    return PartitionMetadata(int(version), topic_id)


def _is_uuid(text: str) -> bool:
    """Return whether a text is a Kafka UUID (``Uuid.fromString``) other than zero."""
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(decoded) == 16 and any(decoded)


def write_partition_metadata(path: str | os.PathLike[str], metadata: PartitionMetadata, /) -> None:
    """
    Write a ``partition.metadata`` file atomically; an existing file is replaced.

    Raises
    ------
    ValueError
        If the topic id is not one that Kafka accepts.
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
    _write(Path(path), partition_metadata_file(metadata))


def partition_metadata_file(metadata: PartitionMetadata) -> bytes:
    """Return the bytes of the file; as `write_partition_metadata`."""
    require_type(PartitionMetadata, metadata=metadata)
    if not isinstance(metadata.topic_id, str) or not _is_uuid(metadata.topic_id):
        raise ValueError(
            f"{metadata.topic_id!r} is not a topic id: 22 characters of URL-safe base64, not zero"
        )
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def read_meta_properties(path: str | os.PathLike[str], /) -> dict[str, str]:
    """
    Read the ``meta.properties`` file of a data dir: its cluster, node and directory ids.

    Returns
    -------
    dict
        Such as ``version``, ``cluster.id``, ``node.id`` (``broker.id`` in version 0),
        ``directory.id``.

    Raises
    ------
    CorruptCheckpointError
        If a line is not a property (the part of ``java.util.Properties`` that Kafka writes).
    SideFileTooLargeError
        If it has more than 64 KiB: brokers write less than 1 KiB.
    OSError
    """
    return parse_meta_properties(read_regular(path), os.fspath(path))


def parse_meta_properties(data: bytes, path: str) -> dict[str, str]:
    """Parse the bytes of a ``meta.properties`` file; as `read_meta_properties`."""
    require_side_file_size(len(data), path, _LARGEST_PROPERTIES)
    found = {}
    for number, line in enumerate(_iter_lines(data, path)):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise _bad_line(path, data, number, f"{line!r} is not a property")
        found[_unescaped(name.strip())] = _unescaped(value.lstrip())
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text) if "\\" in text else text


def write_meta_properties(path: str | os.PathLike[str], properties: Mapping[str, str], /) -> None:
    """
    Write a ``meta.properties`` file atomically; an existing file is replaced.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
    require_type(Mapping, properties=properties)
    require_items(str, properties=properties, values=properties.values())
    lines = (f"{_escaped(name)}={_escaped(value)}\n" for name, value in properties.items())
    _write(Path(path), "".join(lines).encode())


def _escaped(text: str) -> str:
    return re.sub(r"([\\:=#! ])", r"\\\1", text)


def read_clean_shutdown(path: str | os.PathLike[str], /) -> CleanShutdown:
    """
    Read a ``.kafka_cleanshutdown`` file.

    Raises
    ------
    CorruptCheckpointError
        If it is neither empty nor the JSON that Kafka writes (``CleanShutdownFileHandler``).
    SideFileTooLargeError
        If it has more than 64 KiB: brokers write less than 1 KiB.
    OSError
    """
    path = os.fspath(path)
    data = read_regular(path)
    require_side_file_size(len(data), path, _LARGEST_PROPERTIES)
    if not data:
        return CleanShutdown(version=0, broker_epoch=-1)
    text = "\n".join(_iter_lines(data, path))
    try:
        content = json.loads(text)
        return CleanShutdown(int(content["version"]), int(content["brokerEpoch"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _bad_line(path, data, 0, "not the JSON that brokers write") from error


def write_clean_shutdown(path: str | os.PathLike[str], shutdown: CleanShutdown, /) -> None:
    """
    Write a ``.kafka_cleanshutdown`` file: the next broker does not recover the logs.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
    _write(Path(path), clean_shutdown_file(shutdown))


def clean_shutdown_file(shutdown: CleanShutdown) -> bytes:
    """Return the bytes of a ``.kafka_cleanshutdown`` file."""
    require_type(CleanShutdown, shutdown=shutdown)
    content = {"version": shutdown.version, "brokerEpoch": shutdown.broker_epoch}
    return json.dumps(content, separators=(",", ":")).encode()


# ---- lines -----------------------------------------------------------------------------------


def _iter_lines(data: bytes, path: str) -> Iterator[str]:
    """Yield lines as Java's ``BufferedReader`` does: they end with LF, CR or CRLF."""
    for line in io.StringIO(_text_of(data, path), newline=None):
        yield line.removesuffix("\n")


def _text_of(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        reason = "the file is not text"
        raise CorruptCheckpointError(path, error.start, None, reason, "BAD_CHECKPOINT") from error


def _is_int(text: str) -> bool:
    """Return whether Java's ``parseInt`` accepts a text."""
    return _NUMBER.fullmatch(text) is not None and -(1 << 31) <= int(text) < 1 << 31


def _number(path: str, data: bytes, number: int, line: str) -> int:
    if not _is_int(line):
        raise _bad_line(path, data, number, f"{line!r} is not a number")
    return int(line)


def _bad_line(path: str, data: bytes, number: int, reason: str) -> CorruptCheckpointError:
    text = io.TextIOWrapper(io.BytesIO(data), encoding="latin-1", newline="")
    position = sum(len(line) for line in itertools.islice(text, number))
    return CorruptCheckpointError(
        path, position, None, f"line {number + 1}: {reason}", "BAD_CHECKPOINT"
    )


def _write(path: Path, data: bytes) -> None:
    with AtomicFile(path) as file:
        file.stream.write(data)
