"""Public functions that read records: `read_records`, `iter_records`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from kafkascan.batches.columns import BatchTable
from kafkascan.format.file_names import parse_segment_name
from kafkascan.io.sources import Source, SourceLike, borrowed_source
from kafkascan.logs.read_committed import CommittedView, read_committed_view
from kafkascan.records.decoding import decode_records, iter_decoded
from kafkascan.records.decompression import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.records.read_options import Control, OnDamage, ReadOptions, Visible
from kafkascan.records.record_table import RecordTable

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]


def read_records(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    isolation: Isolation = "read_uncommitted",
    transactions: CommittedView | None = None,
    verify: bool = False,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
) -> RecordTable:
    """
    Decode records of every format and codec into columns.

    Parameters
    ----------
    source : path, bytes-like, Source or SegmentFile
        A path is opened for the table and stays mapped while the table exists.
    batches : array of BATCH_DTYPE, optional
        Rows of the source to read, in any order and selection, such as
        ``scan.batches[mask]``; all of it by default.
    columns : sequence of str, optional
        Names of `RECORD_COLUMN_NAMES` and `COLUMN_NAMES`; by default ``offset``, ``timestamp``,
        ``key``, ``value`` and ``headers``. Without key, value and headers, only the fields
        before a record's key are decoded and checked.
    control : {"skip", "only", "include"}
        What to do with control batches: transaction markers and KRaft's control records.
    isolation : {"read_uncommitted", "read_committed"}
        "read_committed" returns the records that a consumer with this ``isolation.level`` would
        get: it omits aborted transactions, and everything from the first offset of a
        transaction that is still open at the end of the log.
    transactions : CommittedView, optional
        The outcome of the log's transactions. By default it is read from all segments of the
        partition folder that contains the file, or from the source alone if it is not such a
        file.
    verify : bool, default False
        Verify the checksums of the batches first.
    threads : int, optional
        Maximum number of threads; by default one per CPU. Small inputs use fewer.
    max_decompressed_size : int, default 256 MiB
        Maximum bytes that one batch may decompress to.

    Returns
    -------
    RecordTable

    Raises
    ------
    InvalidRecordError
        If Kafka would reject the records of a batch, or they cannot be decompressed.
    UnsupportedCompressionError
        If the codec of a batch does not exist in its format.
    ChecksumMismatchError
        If `verify` is set and a checksum is wrong.
    CorruptBatchError, UnsupportedMagicError
        As `scan_batches`, if `batches` is not given.
    BatchTableError
        If a row does not describe the batch at its position in this source.
    SourceReadError
        If the file was truncated or its disk failed during the read.

    Notes
    -----
    Records are those of Kafka's ``DefaultRecordBatch`` and ``AbstractLegacyRecordBatch``
    iterators: offsets inside compressed messages of magic 1 are relative (KIP-31), and records
    of LOG_APPEND_TIME batches have the batch's timestamp (KIP-32). Memory: up to 56 bytes per
    record, plus the decompressed bytes of compressed batches.
    """
    visible, source = _visible(source, isolation, transactions)
    options = ReadOptions(
        columns=columns,
        control=control,
        verify=verify,
        threads=threads,
        max_decompressed_size=max_decompressed_size,
        visible=visible,
    )
    return decode_records(source, batches, options)


def iter_records(
    source: SourceLike,
    batches: BatchTable | None = None,
    /,
    *,
    columns: Sequence[str] | None = None,
    control: Control = "skip",
    isolation: Isolation = "read_uncommitted",
    transactions: CommittedView | None = None,
    verify: bool = False,
    threads: int | None = None,
    max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED_SIZE,
    batch_size: int = 65_536,
    on_damage: OnDamage | None = None,
) -> Iterator[RecordTable]:
    """
    Decode records in tables of bounded size.

    Parameters
    ----------
    source, batches, columns, control, isolation, transactions, verify, max_decompressed_size
        See `read_records`.
    threads : int, optional
        Maximum number of threads that verify checksums; by default one. Tables are decoded in
        the calling thread.
    batch_size : int, default 65536
        Number of records of a table. A table ends with the batch that reaches this number,
        32 MiB of decompressed or 16 MiB of stored bytes; batches are not split.
    on_damage : callable, optional
        Called with the error of each batch that cannot be read; the batch is skipped. By
        default the first error is raised.

    Yields
    ------
    RecordTable
        Has at least one record.

    Raises
    ------
    As `read_records`. Records before the damage are yielded before the error is raised.
    """
    visible, source = _visible(source, isolation, transactions)
    options = ReadOptions(
        columns=columns,
        control=control,
        verify=verify,
        threads=threads,
        max_decompressed_size=max_decompressed_size,
        batch_size=batch_size,
        on_damage=on_damage,
        visible=visible,
    )
    return iter_decoded(source, batches, options)


def _visible(
    source: SourceLike, isolation: str, transactions: CommittedView | None
) -> tuple[Visible | None, SourceLike]:
    """Return the mask of visible batches, and the source, which may have been opened for it."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(
            f"isolation must be 'read_uncommitted' or 'read_committed', not {isolation!r}"
        )
    if isolation == "read_uncommitted":
        return None, source
    if transactions is None:
        with borrowed_source(source, close=False) as owner:
            source = owner
            transactions = read_committed_view(_log_of(owner))
    return transactions.mask, source


def _log_of(source: Source) -> SourceLike:
    """Return the partition folder of a segment file; for another source, the source itself."""
    folder, name = os.path.split(os.path.abspath(source.path))
    parsed = parse_segment_name(name) if source.is_file else None
    return folder if parsed is not None and parsed.is_live else source
