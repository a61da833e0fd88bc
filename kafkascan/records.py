"""The door to records: which of them there are for a reader, decoded into columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from kafkascan.batch_columns import BatchTable
from kafkascan.codecs import DEFAULT_MAX_DECOMPRESSED_SIZE
from kafkascan.committed import CommittedView, read_committed_view
from kafkascan.decoding import Control, OnDamage, Visible, decode_records, iter_decoded
from kafkascan.names import parse_segment_name
from kafkascan.record_table import RecordTable
from kafkascan.sources import Source, SourceLike, borrowed_source

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
    Decode records, of every format and codec, into columns.

    Parameters
    ----------
    source : path, bytes-like, Source or Segment
        A path is opened for the table, and stays mapped as long as the table lives.
    batches : array of BATCH_DTYPE, optional
        Rows of the source to read, in any order and selection, such as
        ``scan.batches[mask]``; all of it by default.
    columns : sequence of str, optional
        Of `RECORD_COLUMN_NAMES` and `COLUMN_NAMES`; by default ``offset``, ``timestamp``,
        ``key``, ``value`` and ``headers``. Without key, value and headers, no more of a
        record is looked at than what stands before its key.
    control : {"skip", "only", "include"}
        What to do with the records of control batches: transaction markers and KRaft's own.
    isolation : {"read_uncommitted", "read_committed"}
        With "read_committed", the records that a consumer with this ``isolation.level`` would
        get: none of aborted transactions, and none from the first offset on of a transaction
        that is open where the log ends.
    transactions : CommittedView, optional
        How transactions ended. By default it is read from all segments of the partition whose
        folder the file lies in; of anything else, from the source alone.
    verify : bool, default False
        Compare the checksums of the batches first.
    threads : int, optional
        At most this many threads; by default one per CPU, as far as the size is worth it.
    max_decompressed_size : int, default 256 MiB
        Bytes that one batch may decompress to.

    Returns
    -------
    RecordTable

    Raises
    ------
    InvalidRecordError
        If Kafka would refuse the records of a batch, or they cannot be decompressed.
    UnsupportedCompressionError
        If a batch names a codec that its format does not have.
    ChecksumMismatchError
        If `verify` is set and a checksum is wrong.
    CorruptBatchError, UnsupportedMagicError
        As `scan_batches`, if `batches` is not given.
    BatchTableError
        If a row does not describe the batch at its position in this source.
    SourceReadError
        If the file was truncated, or its disk failed, meanwhile.

    Notes
    -----
    Records are those of Kafka's ``DefaultRecordBatch`` and ``AbstractLegacyRecordBatch``
    iterators: offsets of wrapped messages of magic 1 are relative (KIP-31), timestamps of
    LOG_APPEND_TIME batches are the batch's (KIP-32). Memory: up to 56 bytes per record, and
    what compressed batches decompress to.
    """
    visible, source = _visible(source, isolation, transactions)
    return decode_records(
        source,
        batches,
        columns=columns,
        control=control,
        verify=verify,
        threads=threads,
        max_decompressed_size=max_decompressed_size,
        visible=visible,
    )


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
        As of `read_records`.
    threads : int, optional
        At most this many threads, for checksums; by default one. A table is decoded by the
        thread that asks for it.
    batch_size : int, default 65536
        Records of each table. Batches are not cut: a table has more where its last batch
        takes it beyond, and fewer where 32 MiB were decompressed, or 16 MiB read, before.
    on_damage : callable, optional
        Gets the error of each batch whose records cannot be read, which is then left out. By
        default the first such error is raised.

    Yields
    ------
    RecordTable
        Never empty.

    Raises
    ------
    As `read_records`. The records before the damage are yielded before the error is raised.
    """
    visible, source = _visible(source, isolation, transactions)
    return iter_decoded(
        source,
        batches,
        columns=columns,
        control=control,
        verify=verify,
        threads=threads,
        max_decompressed_size=max_decompressed_size,
        batch_size=batch_size,
        on_damage=on_damage,
        visible=visible,
    )


def _visible(
    source: SourceLike, isolation: str, transactions: CommittedView | None
) -> tuple[Visible | None, SourceLike]:
    """Return the mask for a reader, and the source, which may have been opened for that."""
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
    """Return the folder of the log that a file is a segment of, or the source itself."""
    folder, name = os.path.split(os.path.abspath(source.path))
    parsed = parse_segment_name(name) if source.is_file else None
    return folder if parsed is not None and parsed.is_live else source
