"""Commands that rewrite logs: convert, restamp, scrub."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

import kafkascan as ks
from kafkascan.cli.shared_options import (
    DISK_PATH,
    NATURAL,
    POSITIVE,
    THREADS,
    Command,
    Decorator,
    DiskPath,
    Integer,
    IntegerRange,
    Time,
    check_ranges,
    declare,
    interval_bytes,
    option,
    table_command,
)
from kafkascan.format.errors import (
    BatchTableError,
    CorruptLogError,
    IndexOverflowError,
    RecordInputError,
    UnfitBatchError,
)
from kafkascan.rewrite.rewrite_schemas import CONVERSION_SCHEMA, RESTAMP_SCHEMA, SCRUB_SCHEMA
from kafkascan.tables.schema import Schema

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport
    from kafkascan.tables.table import AnyTable

# Of a file of keys: a device has no end.
_LARGEST_KEYS = 1 << 28
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# What is wrong with batches, so that nothing is written.
_DAMAGE = (CorruptLogError, IndexOverflowError, BatchTableError, RecordInputError, UnfitBatchError)

_TARGET: list[Decorator] = [
    option("-o --output TARGET", "target", type=DiskPath(),
           help="Write the new log to TARGET, which must not exist: a directory if PATH is a"
           " directory, a file if PATH is a file."),
    option("--in-place",
           help="Replace the files of PATH (each one atomically). Refused while a broker uses the"
           " data directory."),
    interval_bytes(
        "with --in-place the topic's setting in the data directory's metadata log, if there"
        " is one; otherwise 4096"
    ),
    option("--producer-expiration-ms MS", type=NATURAL, show_default="86400000, one day",
           help="Drop producers from rebuilt snapshots that were idle for more than MS"
           " milliseconds: the broker's producer.id.expiration.ms."),
]  # fmt: skip


def _rewriting_command(schema: Schema, *options: Decorator) -> Callable[[Command], click.Command]:
    """Declare a command that rewrites a log: to a target, or in place."""

    def require_target(command: Command) -> Command:
        @functools.wraps(command)
        def call(*, target: Path | None, in_place: bool, **arguments: Any) -> Any:
            if in_place == (target is not None):
                raise click.UsageError("give --output TARGET or --in-place")
            return command(target=target, in_place=in_place, **arguments)

        return declare(call, *_TARGET, *options)

    return table_command(
        schema,
        require_target,
        inputs=DISK_PATH,
        to_file=False,
        rows="rows, one per segment",
        damage=_DAMAGE,
    )


@_rewriting_command(
    CONVERSION_SCHEMA,
    option("--to-magic", type=IntegerRange(0, 2), help="Convert to message format 0, 1 or 2."),
    option("--compression-type", type=_CODECS,
           show_default="the codec of each batch",
           help="Compress all batches with this codec."),
    option("--compression-level LEVEL", type=Integer(),
           show_default="Kafka's default for the codec",
           help="Compression level."),
    option("--batch-size BYTES", type=POSITIVE, default=16384,
           help="Combine messages of magic 0 and 1 into batches of about BYTES bytes."),
    THREADS,
)  # fmt: skip
def convert(path: Any, _: FindingReport, **options: Any) -> AnyTable:
    """Convert a log to another message format or codec.

    Prints a row per segment. Data that the new format cannot represent is reported on stderr.

    PATH is a .log file or a partition directory. In a directory, the live segments are converted.
    """
    if options["to_magic"] is None and options["compression_type"] is None:
        raise click.UsageError("give --to-magic or --compression-type")
    return ks.convert_log(path, options.pop("target"), **options)


@_rewriting_command(
    RESTAMP_SCHEMA,
    option("--offset-shift N", type=IntegerRange(-(2**63), 2**63 - 1), default=0,
           help="Add N to all offsets."),
    option("--partition-leader-epoch EPOCH", type=IntegerRange(-1, 2**31 - 1),
           help="Set the partition_leader_epoch of all batches."),
    option("--log-append-time TIME", type=Time(),
           help="Set the timestamp of all records, and the timestamp type to LogAppendTime."),
    option("--max-timestamp TIME", type=Time(), help="Set the max_timestamp of all batches."),
)  # fmt: skip
def restamp(
    path: Any,
    _: FindingReport,
    log_append_time: int | None,
    max_timestamp: int | None,
    **options: Any,
) -> AnyTable:
    """Rewrite header fields: offsets, leader epoch, timestamps.

    The fields of all batches change; records stay compressed and unchanged. Prints a row per
    segment.

    PATH is a .log file or a partition directory. In a directory, the live segments are rewritten.
    """
    if log_append_time is not None and max_timestamp is not None:
        raise click.UsageError("--log-append-time and --max-timestamp cannot be combined")
    times = (log_append_time, max_timestamp, options["partition_leader_epoch"])
    if not options["offset_shift"] and times == (None, None, None):
        raise click.UsageError("give at least one field to change")
    kind = None if log_append_time is None else ks.TimestampType.LOG_APPEND_TIME
    time = max_timestamp if log_append_time is None else log_append_time
    options |= {"max_timestamp": time, "timestamp_type": kind}
    return ks.restamp_log(path, options.pop("target"), **options)


@_rewriting_command(
    SCRUB_SCHEMA,
    option("--key TEXT", "keys", multiple=True,
           help="Remove records with this key (UTF-8); may be given several times."),
    option("--keys-from FILE", type=click.File("rb"),
           help="Remove records with the keys in FILE, one per line."),
    option("--from-offset OFFSET", type=Integer(), help="Remove records from OFFSET on."),
    option("--to-offset OFFSET", type=Integer(), help="Remove records up to OFFSET, which stays."),
    THREADS,
)  # fmt: skip
def scrub(
    path: Any,
    _: FindingReport,
    keys: tuple[str, ...],
    keys_from: BinaryIO | None,
    from_offset: int | None,
    to_offset: int | None,
    **options: Any,
) -> AnyTable:
    """Remove records by key or by offset, as compaction does.

    The offsets and sequences of the other records stay, as do transaction markers. Messages of
    magic 0 and 1 are converted to magic 2. The new log is verified before it replaces the old
    one. Prints a row per segment. A key that no record has is a finding.

    PATH is a .log file or a partition directory. In a directory, the live segments are rewritten.
    Keys and offsets cannot be combined.
    """
    names = [key.encode("utf-8", "surrogateescape") for key in keys]
    names += [] if keys_from is None else _keys_in(keys_from)
    by_offset = from_offset is not None or to_offset is not None
    if bool(names) == by_offset:
        raise click.UsageError("give the keys or the offsets of the records to remove")
    check_ranges(from_offset=from_offset, to_offset=to_offset)
    if to_offset is not None and from_offset == to_offset:
        raise click.UsageError(
            f"no offset is between --from-offset {from_offset} and --to-offset {to_offset},"
            " which is exclusive"
        )
    last = None if to_offset is None else to_offset - 1

    keep = ks.rewrite.without_offsets(from_offset, last) if by_offset else ks.without_keys(names)
    return ks.scrub_log(path, options.pop("target"), keep=keep, **options)


def _keys_in(file: BinaryIO) -> list[bytes]:
    try:
        data = file.read(_LARGEST_KEYS + 1)
    except OSError as error:
        raise _bad_keys(file, str(error.strerror)) from None
    if len(data) > _LARGEST_KEYS:
        raise _bad_keys(file, f"more than {_LARGEST_KEYS} bytes are not read")
    return data.splitlines()


def _bad_keys(file: BinaryIO, reason: str) -> click.BadParameter:
    return click.BadParameter(f"{file.name}: {reason}", param_hint="--keys-from")
