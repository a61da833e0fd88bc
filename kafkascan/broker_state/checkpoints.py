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
from typing import NamedTuple

from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.folders import read_regular

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
# Numbers as Java parses them: no underscores, no spaces.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_INT_BITS, _LONG_BITS = 32, 64


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
    OSError
    """
    return parse_leader_epochs(read_regular(path), os.fspath(path))


def parse_leader_epochs(data: bytes, path: str) -> list[LeaderEpoch]:
    """Parse the bytes of the file; as `read_leader_epochs`."""
    entries = _checkpoint_entries(data, path, fields=2)
    return [LeaderEpoch(int(epoch), int(start)) for epoch, start in entries]


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
    OSError
    """
    return parse_offset_checkpoint(read_regular(path), os.fspath(path))


def parse_offset_checkpoint(data: bytes, path: str) -> dict[tuple[str, int], int]:
    """Parse the bytes of the file; as `read_offset_checkpoint`."""
    entries = _checkpoint_entries(data, path, fields=3)
    return {(topic, int(partition)): int(offset) for topic, partition, offset in entries}


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
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    data = _checkpoint_file(lines)
    parse_offset_checkpoint(data, os.fspath(path))
    _write(Path(path), data)


def _checkpoint_entries(data: bytes, path: str, *, fields: int) -> Iterator[list[str]]:
    """
    Yield the fields of each entry; the last two are numbers.

    Entries are read one by one: a list of their texts would take ten times the file's size.
    """
    lines = _iter_lines(data, path)
    if (first := next(lines, None)) is None:
        return
    version = _number(path, data, 0, first)
    if version != _CHECKPOINT_VERSION:
        raise _bad_line(path, data, 0, f"version {version} is not {_CHECKPOINT_VERSION}")
    if (second := next(lines, None)) is None:
        return
    expected, count = _number(path, data, 1, second), 0
    for line in lines:
        words = line.split()
        fits = map(_fits, words[fields - 2 :], (_INT_BITS, _LONG_BITS))
        if len(words) != fields or not all(fits):
            raise _bad_line(path, data, count + 2, f"{line!r} is not an entry")
        count += 1
        yield words
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
    OSError
    """
    return parse_partition_metadata(read_regular(path), os.fspath(path))


def parse_partition_metadata(data: bytes, path: str) -> PartitionMetadata:
    """Parse the bytes of the file; as `read_partition_metadata`."""
    found = {}
    for number, line in enumerate(_iter_lines(data, path)):
        name, colon, value = line.partition(":")
        if not colon:
            raise _bad_line(path, data, number, f"{line!r} is not an entry")
        if name.strip() in ("version", "topic_id"):
            found[name.strip()] = value.strip()
    version, topic_id = found.get("version", ""), found.get("topic_id", "")
    if not _fits(version, _INT_BITS) or int(version) < _METADATA_VERSION:
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
    OSError
    """
    return parse_meta_properties(read_regular(path), os.fspath(path))


def parse_meta_properties(data: bytes, path: str) -> dict[str, str]:
    """Parse the bytes of a ``meta.properties`` file; as `read_meta_properties`."""
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
    return re.sub(r"\\(.)", r"\1", text)


def write_meta_properties(path: str | os.PathLike[str], properties: Mapping[str, str], /) -> None:
    """
    Write a ``meta.properties`` file atomically; an existing file is replaced.

    Raises
    ------
    OSError
        If the file cannot be written; an existing file is unchanged.
    """
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
    OSError
    """
    path = os.fspath(path)
    data = read_regular(path)
    if not data:
        return CleanShutdown(version=0, broker_epoch=-1)
    text = "\n".join(_iter_lines(data, path))
    try:
        content = json.loads(text)
        return CleanShutdown(int(content["version"]), int(content["brokerEpoch"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
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
    content = {"version": shutdown.version, "brokerEpoch": shutdown.broker_epoch}
    return json.dumps(content, separators=(",", ":")).encode()


# ---- lines -----------------------------------------------------------------------------------


def _iter_lines(data: bytes, path: str) -> Iterator[str]:
    """Yield lines as Java's ``BufferedReader`` does: they end with LF, CR or CRLF."""
    try:
        for line in io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"):
            yield line.removesuffix("\n")
    except UnicodeDecodeError as error:
        position = _valid_utf8_size(data)
        reason = "the file is not text"
        raise CorruptCheckpointError(path, position, None, reason, "BAD_CHECKPOINT") from error


def _valid_utf8_size(data: bytes) -> int:
    """Return the position of the first byte that is not UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return len(data)


def _fits(text: str, bits: int) -> bool:
    """Return whether a text is a Java integer of at most the given number of bits."""
    if not _NUMBER.fullmatch(text):
        return False
    return -(1 << bits - 1) <= int(text) < 1 << bits - 1


def _number(path: str, data: bytes, number: int, line: str) -> int:
    if not _fits(line, _INT_BITS):
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
