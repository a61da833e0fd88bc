"""Parse the output of Kafka's DumpLogSegments. Runs neither a broker nor a JVM.

The parser knows the lines of the Java tool of Kafka 4.4: batches of message format 2, messages of
formats 0 and 1, records, index files, transaction indexes and producer snapshots. Any other line is
an error, with one exception: payloads may contain line breaks, so an unknown line after a record
line continues that record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


class DumpFormatError(ValueError):
    """The text is not what DumpLogSegments prints."""


@dataclass(frozen=True)
class DumpedBatch:
    """One batch line; fields that message formats 0 and 1 lack are None."""

    base_offset: int | None
    last_offset: int
    count: int | None
    base_sequence: int | None
    last_sequence: int | None
    producer_id: int | None
    producer_epoch: int | None
    partition_leader_epoch: int | None
    is_transactional: bool | None
    is_control: bool | None
    delete_horizon_ms: int | None
    """None also where the batch has no delete horizon."""
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    compression: str
    crc: int
    is_valid: bool
    records: list[DumpedRecord] = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class DumpedRecord:
    """One record line; fields that the line lacks, and a null key or payload, are None."""

    text: str
    """The whole line."""
    offset: int
    timestamp_type: str
    timestamp: int
    key_size: int
    """-1 for a null key."""
    value_size: int
    """-1 for a null value."""
    sequence: int | None = None
    header_keys: str | None = None
    """The keys as printed, joined by commas."""
    is_valid: bool | None = None
    crc: int | None = None
    control: str | None = None
    """The content of a control record."""
    key: str | None = None
    payload: str | None = None


@dataclass(frozen=True)
class LogDump:
    """The dump of one `.log` or `.checkpoint` file."""

    start: str
    """The line after the file name: the start offset according to the file's name."""
    batches: list[DumpedBatch]
    invalid_bytes: int
    """Bytes after the last batch, if the tool reported them before it failed."""


@dataclass(frozen=True)
class DumpedIndexEntry:
    """One line of an offset index."""

    offset: int
    position: int


@dataclass(frozen=True)
class DumpedTimeIndexEntry:
    """One line of a time index."""

    timestamp: int
    offset: int


@dataclass(frozen=True)
class DumpedAbortedTransaction:
    """One line of a transaction index."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True)
class DumpedProducer:
    """One line of a producer snapshot; the fields of the last batch are None when there is none."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    last_timestamp: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None


_TIME = r"(?P<timestamp_type>CreateTime|LogAppendTime|NoTimestampType): (?P<timestamp>-?\d+)"
_BATCH_END = (
    rf"position: (?P<position>\d+) {_TIME} size: (?P<size>\d+) magic: (?P<magic>\d+) "
    r"compresscodec: (?P<compression>\w+) crc: (?P<crc>\d+) isvalid: (?P<is_valid>true|false)"
)
_BATCH_V2 = re.compile(
    r"baseOffset: (?P<base_offset>-?\d+) lastOffset: (?P<last_offset>-?\d+) "
    r"count: (?P<count>-?\d+) "
    r"baseSequence: (?P<base_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<partition_leader_epoch>-?\d+) "
    r"isTransactional: (?P<is_transactional>true|false) isControl: (?P<is_control>true|false) "
    rf"deleteHorizonMs: (?P<delete_horizon_ms>\S+) {_BATCH_END}"
)
_BATCH_LEGACY = re.compile(rf"offset: (?P<last_offset>-?\d+) {_BATCH_END}")
_RECORD = re.compile(
    rf"\| offset: (?P<offset>-?\d+) {_TIME} "
    r"keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r"(?P<rest>.*)",
    re.DOTALL,
)
_RECORD_REST = re.compile(
    r"(?: sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<header_keys>.*?)\])?"
    r"(?: isValid: (?P<is_valid>true|false) crc: (?P<crc>\d+)\}?)?"
    r"(?P<control> (?:endTxnMarker|LeaderChange|SnapshotHeader|SnapshotFooter"
    r"|KRaftVersion|KRaftVoters|controlType)\b.*?)?"
    r"(?: key: (?P<key>.*?))?"
    r"(?: payload: (?P<payload>.*))?",
    re.DOTALL,
)
_INVALID_BYTES = re.compile(r"Found (\d+) invalid bytes at the end of .+")
_START = ("Log starting offset: ", "Snapshot end offset: ", "KRaft bootstrap snapshot")
_INDEX = re.compile(r"offset: (-?\d+) position: (-?\d+)")
_TIME_INDEX = re.compile(r"timestamp: (-?\d+) offset: (-?\d+)")
_TRANSACTION = re.compile(
    r"version: (\d+) producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
)
_PRODUCER = re.compile(
    r"producerId: (?P<producer_id>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"coordinatorEpoch: (?P<coordinator_epoch>-?\d+) "
    r"currentTxnFirstOffset: (?P<current_txn_first_offset>\S+) "
    r"lastTimestamp: (?P<last_timestamp>-?\d+) ?"
    r"(?:firstSequence: (?P<first_sequence>-?\d+) lastSequence: (?P<last_sequence>-?\d+) "
    r"lastOffset: (?P<last_offset>-?\d+) offsetDelta: (?P<offset_delta>-?\d+) timestamp: -?\d+)?"
)


def parse_log(text: str) -> LogDump:
    """Parse the dump of a `.log` or `.checkpoint` file, made with or without `--deep-iteration`."""
    lines = _body(text)
    start = next(lines, "")
    if not start.startswith(_START):
        raise DumpFormatError(f"not the dump of a log: {start!r}")
    batches: list[DumpedBatch] = []
    invalid_bytes = 0
    for line in _joined_records(lines):
        if line.startswith("|"):
            batches[-1].records.append(_parse_record(line))
        elif trailing := _INVALID_BYTES.fullmatch(line):
            invalid_bytes = int(trailing[1])
        else:
            batches.append(_parse_batch(line))
    return LogDump(start, batches, invalid_bytes)


def parse_index(text: str) -> list[DumpedIndexEntry]:
    """Parse the dump of an `.index` file."""
    lines = (line for line in _body(text) if not line.endswith(" is empty."))
    return [DumpedIndexEntry(*_integers(_INDEX, line)) for line in lines]


def parse_time_index(text: str) -> list[DumpedTimeIndexEntry]:
    """Parse the dump of a `.timeindex` file."""
    return [DumpedTimeIndexEntry(*_integers(_TIME_INDEX, line)) for line in _body(text)]


def parse_transaction_index(text: str) -> list[DumpedAbortedTransaction]:
    """Parse the dump of a `.txnindex` file."""
    return [DumpedAbortedTransaction(*_integers(_TRANSACTION, line)) for line in _body(text)]


def parse_producer_snapshot(text: str) -> list[DumpedProducer]:
    """Parse the dump of a `.snapshot` file."""
    return [_parse_producer(line) for line in _body(text)]


def _body(text: str) -> Iterator[str]:
    """Return the lines after "Dumping <path>". Only line feeds end them; payloads have others."""
    lines = iter(text.removesuffix("\n").split("\n"))
    first = next(lines)
    if not first.startswith("Dumping "):
        raise DumpFormatError(f"the first line is not the file's name: {first!r}")
    return lines


def _joined_records(lines: Iterator[str]) -> Iterator[str]:
    """Join the lines of records whose key or payload contains a line break."""
    joined: str | None = None
    for line in lines:
        if joined is not None and joined.startswith("|") and not _starts_something(line):
            joined += "\n" + line
            continue
        if joined is not None:
            yield joined
        joined = line
    if joined is not None:
        yield joined


def _starts_something(line: str) -> bool:
    patterns = (_RECORD, _BATCH_V2, _BATCH_LEGACY, _INVALID_BYTES)
    return any(pattern.fullmatch(line) for pattern in patterns)


def _parse_batch(line: str) -> DumpedBatch:
    match = _BATCH_V2.fullmatch(line) or _BATCH_LEGACY.fullmatch(line)
    if match is None:
        raise DumpFormatError(f"neither a batch nor a record: {line!r}")
    words = match.groupdict()
    return DumpedBatch(
        base_offset=_integer(words.get("base_offset")),
        last_offset=int(match["last_offset"]),
        count=_integer(words.get("count")),
        base_sequence=_integer(words.get("base_sequence")),
        last_sequence=_integer(words.get("last_sequence")),
        producer_id=_integer(words.get("producer_id")),
        producer_epoch=_integer(words.get("producer_epoch")),
        partition_leader_epoch=_integer(words.get("partition_leader_epoch")),
        is_transactional=_boolean(words.get("is_transactional")),
        is_control=_boolean(words.get("is_control")),
        delete_horizon_ms=_optional_long(words.get("delete_horizon_ms", "OptionalLong.empty")),
        position=int(match["position"]),
        timestamp_type=match["timestamp_type"],
        max_timestamp=int(match["timestamp"]),
        size=int(match["size"]),
        magic=int(match["magic"]),
        compression=match["compression"],
        crc=int(match["crc"]),
        is_valid=match["is_valid"] == "true",
    )


def _parse_record(line: str) -> DumpedRecord:
    match = _RECORD.fullmatch(line)
    rest = _RECORD_REST.fullmatch(match["rest"]) if match else None
    if match is None or rest is None:
        raise DumpFormatError(f"not a record: {line!r}")
    return DumpedRecord(
        text=line,
        offset=int(match["offset"]),
        timestamp_type=match["timestamp_type"],
        timestamp=int(match["timestamp"]),
        key_size=int(match["key_size"]),
        value_size=int(match["value_size"]),
        sequence=_integer(rest["sequence"]),
        header_keys=rest["header_keys"],
        is_valid=_boolean(rest["is_valid"]),
        crc=_integer(rest["crc"]),
        control=rest["control"] and rest["control"].strip(),
        key=rest["key"],
        payload=rest["payload"],
    )


def _parse_producer(line: str) -> DumpedProducer:
    match = _PRODUCER.fullmatch(line)
    if match is None:
        raise DumpFormatError(f"not a producer: {line!r}")
    return DumpedProducer(
        producer_id=int(match["producer_id"]),
        producer_epoch=int(match["producer_epoch"]),
        coordinator_epoch=int(match["coordinator_epoch"]),
        current_txn_first_offset=_optional_long(match["current_txn_first_offset"]),
        last_timestamp=int(match["last_timestamp"]),
        first_sequence=_integer(match["first_sequence"]),
        last_sequence=_integer(match["last_sequence"]),
        last_offset=_integer(match["last_offset"]),
        offset_delta=_integer(match["offset_delta"]),
    )


def _integers(pattern: re.Pattern[str], line: str) -> list[int]:
    match = pattern.fullmatch(line)
    if match is None:
        raise DumpFormatError(f"not an index entry: {line!r}")
    return [int(word) for word in match.groups()]


def _integer(word: str | None) -> int | None:
    return None if word is None else int(word)


def _boolean(word: str | None) -> bool | None:
    return None if word is None else word == "true"


def _optional_long(word: str) -> int | None:
    """Read Java's `OptionalLong.empty` or `OptionalLong[7]`."""
    return (
        None
        if word == "OptionalLong.empty"
        else int(word.removeprefix("OptionalLong[").removesuffix("]"))
    )
