"""States of transactional ids from ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kafkascan.format.file_names import TRANSACTIONS_TOPIC
from kafkascan.internal_topics.coordinator_records import (
    COORDINATOR_PARTITION,
    IS_EXACT,
    RECORD_OFFSET,
    UNKNOWN_SCHEMA,
    DecodedRecord,
    UnknownParts,
    decode_records,
    unknown_table,
)
from kafkascan.internal_topics.topic_messages import COORDINATOR_RECORDS
from kafkascan.internal_topics.topic_replay import ReplayedLog, replay_all
from kafkascan.logs.log_problems import notes_of_moving
from kafkascan.logs.log_table import LogDirLike
from kafkascan.logs.topic_records import AsOf, open_topic
from kafkascan.tables.schema import PARTITION_LISTS, Field, Schema, Shown, schemas_by_name
from kafkascan.tables.table import Problems, Table
from kafkascan.tables.table_set import TableSet

TRANSACTION_STATUSES = dict(enumerate((
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
    "PrepareEpochFence",
)))  # fmt: skip
"""Names of the states of a transaction by Kafka's number (``TransactionState``)."""

STATE_SCHEMA = Schema(
    "transactions",
    (
        Field("transactional_id", "string", "transactional.id of the producer", nullable=False,
              shown=Shown.ALWAYS),
        Field("producer_id", "int64", "its producer id"),
        Field("producer_epoch", "int16", "its producer epoch"),
        Field("status", "string", "Kafka's name of the transaction's state"),
        Field("partitions", PARTITION_LISTS, "partitions of the current transaction; empty after"
              " its end"),
        Field("timeout_ms", "int32", "time after which the coordinator aborts a transaction", "ms",
              shown=Shown.WIDE),
        Field("start_timestamp", "time", "time at which the transaction began"),
        Field("update_timestamp", "time", "time of the last change"),
        Field("previous_producer_id", "int64", "the producer id before the current one; -1"
              " without one", shown=Shown.WIDE),
        Field("next_producer_id", "int64", "the producer id after the transaction; -1 without one",
              shown=Shown.WIDE),
        Field("next_producer_epoch", "int16", "the producer epoch after the transaction; -1"
              " without one", shown=Shown.WIDE),
        Field("client_transaction_version", "int16", "version of the client's transaction"
              " protocol", shown=Shown.WIDE),
        COORDINATOR_PARTITION,
        RECORD_OFFSET,
        replace(IS_EXACT, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of `TransactionStates.transactions`."""


@dataclass(frozen=True, eq=False, repr=False)
class TransactionStates(TableSet):
    """
    The states of transactional ids; result of `read_transaction_state`.

    Attributes
    ----------
    transactions : Table
        A row per transactional id; `STATE_SCHEMA` has the columns.
    unknown : Table
        Records of unknown types and versions, with their bytes.
    logs : list of ReplayedLog
        The partitions of ``__transaction_state`` that were read.
    problems : Problems
        Damage, unknown records, and what compaction may have removed.
    """

    transactions: Table
    unknown: Table
    logs: list[ReplayedLog]
    problems: Problems

    schemas: ClassVar[dict[str, Schema]] = schemas_by_name(STATE_SCHEMA, UNKNOWN_SCHEMA)

    @property
    def is_exact(self) -> bool:
        """Whether the answer is complete for the partitions that were read."""
        return all(log.is_exact for log in self.logs) and not len(self.unknown)


def read_transaction_state(path: LogDirLike, /, *, as_of: AsOf | None = None) -> TransactionStates:
    """
    Read the states of transactional ids from ``__transaction_state``.

    Parameters
    ----------
    path : path, URL or LogDir
        A broker's data dir, the folder of a partition of ``__transaction_state``, or a tar of
        them.
    as_of : int, mapping, str, datetime or numpy.datetime64, optional
        As in `read_groups`.

    Returns
    -------
    TransactionStates
        As a coordinator loads it.

    Raises
    ------
    NoLogsError
        If there is no partition of ``__transaction_state``.
    ValueError
        If `as_of` is an offset after the end of all partitions, or no time.
    As `open_log_dir`.
    """
    _, logs = open_topic(path, TRANSACTIONS_TOPIC)
    replayed = replay_all(logs, as_of)
    unknown = UnknownParts()
    rows = [row for log in replayed for row in _rows(log, unknown)]
    rows.sort(key=lambda row: str(row["transactional_id"]))
    problems = notes_of_moving(logs)
    problems += (problem for log in replayed for problem in log.problems)
    problems += unknown.problems
    table = Table.of_rows(STATE_SCHEMA, rows, problems)
    return TransactionStates(table, unknown_table(unknown.records, problems), replayed, problems)


def _rows(log: ReplayedLog, unknown: UnknownParts) -> Iterator[dict[str, Any]]:
    schemas = COORDINATOR_RECORDS[TRANSACTIONS_TOPIC]
    for record in decode_records(schemas, log, log.records.values(), unknown):
        yield _row(record) | {"is_exact": not log.errors}
    for record in decode_records(schemas, log, log.unsettled.values(), UnknownParts()):
        yield dict.fromkeys(STATE_SCHEMA.names) | {
            "transactional_id": record.key.fields["transactional_id"],
            "coordinator_partition": record.partition,
            "is_exact": False,
        }


def _row(record: DecodedRecord) -> dict[str, Any]:
    value = record.value.fields
    added = value["transaction_partitions"] or []
    status = value["transaction_status"]
    return {
        "transactional_id": record.key.fields["transactional_id"],
        "producer_id": value["producer_id"],
        "producer_epoch": value["producer_epoch"],
        "status": TRANSACTION_STATUSES.get(status, f"unknown({status})"),
        "partitions": [
            {"topic": one["topic"], "topic_id": None, "partitions": one["partition_ids"]}
            for one in added
        ],
        "timeout_ms": value["transaction_timeout_ms"],
        "start_timestamp": value["transaction_start_timestamp_ms"],
        "update_timestamp": value["transaction_last_update_timestamp_ms"],
        "previous_producer_id": value["previous_producer_id"],
        "next_producer_id": value["next_producer_id"],
        "next_producer_epoch": value["next_producer_epoch"],
        "client_transaction_version": value["client_transaction_version"],
        "coordinator_partition": record.partition,
        "record_offset": record.stored.offset,
    }
