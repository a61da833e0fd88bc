"""Compare the open transactions of logs with what their coordinator has recorded."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkascan.analysis.analysis_schemas import CONTRADICTION_SCHEMA
from kafkascan.format.arguments import require_type
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.file_names import TRANSACTIONS_TOPIC
from kafkascan.format.times import age_text
from kafkascan.io.folders import FolderTree
from kafkascan.logs.log_dir import LogDir, PartitionDir
from kafkascan.logs.log_finding import partition_of
from kafkascan.tables.table import NO_PROBLEMS, Problems, Table, problem_of

if TYPE_CHECKING:
    from kafkascan.analysis.transactions import Transactions
    from kafkascan.internal_topics.transaction_states import TransactionStates

Owner: TypeAlias = "dict[str, Any]"
"""The row of a transactional id."""

UNKNOWN_PRODUCER = "UNKNOWN_PRODUCER"
"""Symbol of a contradiction: no transactional id has the producer id."""

_ONGOING = "Ongoing"
# A marker is on its way to the partition.
_ENDING = ("PrepareCommit", "PrepareAbort")


def find_contradictions(states: TransactionStates, transactions: Transactions) -> Table:
    """
    Return the open transactions of logs that contradict the state of their coordinator.

    Parameters
    ----------
    states : TransactionStates
        With all partitions of ``__transaction_state``; a missing one makes producers unknown.
    transactions : Transactions

    Returns
    -------
    Table
        `CONTRADICTION_SCHEMA` has the columns. The symbols are

        - ``UNKNOWN_PRODUCER``: no transactional id has the producer id.
        - ``TRANSACTION_ENDED``: the transaction has ended, or none has begun.
        - ``PARTITION_NOT_ADDED``: the partition does not belong to the current transaction.
        - ``OTHER_EPOCH``: the current transaction is one of another producer epoch.

    Notes
    -----
    ``kafka-transactions find-hanging`` reports open transactions with one of the first three, once
    they are older than the longest transaction timeout. No marker will end such a transaction.

    Of a running broker, read the transactions before the states: a coordinator writes that a
    partition belongs to a transaction before the partition has a batch of it. A transaction may
    end between both; `lasting_contradictions` drops it.
    """
    from kafkascan.analysis.transactions import Transactions
    from kafkascan.internal_topics.transaction_states import TransactionStates

    require_type(TransactionStates, states=states)
    require_type(Transactions, transactions=transactions)
    by_producer = owners(states)
    rows = []
    for span in transactions.spans[transactions.is_open]:
        partition = transactions.logs[span["log"]].partition
        owner = by_producer.get(int(span["producer_id"]))
        found = contradiction(owner, partition.topic, partition.partition, span)
        if found is None:
            continue
        symbol, reason = found
        log = transactions.logs[span["log"]].name
        rows.append(
            {
                "symbol": symbol,
                "topic": partition.topic,
                "partition": partition.partition,
                "producer_id": int(span["producer_id"]),
                "producer_epoch": int(span["producer_epoch"]),
                "first_offset": int(span["first_offset"]),
                "last_timestamp": int(span["last_timestamp"]),
                "transactional_id": None if owner is None else owner["transactional_id"],
                "status": None if owner is None else owner["status"],
                "message": f"{log}: the transaction of producer {span['producer_id']} is open"
                f" since offset {span['first_offset']}, but {reason}",
            }
        )
    return Table.of_rows(CONTRADICTION_SCHEMA, rows, states.problems + transactions.problems)


def lasting_contradictions(contradictions: Table, transactions: Transactions) -> Table:
    """
    Return the contradictions of transactions that are open later, too.

    Parameters
    ----------
    contradictions : Table
        Of `find_contradictions`.
    transactions : Transactions
        Read after the states of that: a coordinator writes that a transaction has ended after its
        markers.
    """
    opened = {
        (
            transactions.logs[span["log"]].partition.topic,
            transactions.logs[span["log"]].partition.partition,
            int(span["producer_id"]),
            int(span["first_offset"]),
        )
        for span in transactions.spans[transactions.is_open]
    }
    key = ("topic", "partition", "producer_id", "first_offset")
    rows = [row for row in contradictions.rows() if tuple(row[name] for name in key) in opened]
    return Table.of_rows(CONTRADICTION_SCHEMA, rows, contradictions.problems)


def owners(states: TransactionStates) -> dict[int, Owner]:
    """Return the rows of transactional ids by their producer ids."""
    rows = states.transactions.rows()
    return {row["producer_id"]: row for row in rows if row["status"] is not None}


def contradiction(
    owner: Owner | None, topic: str | None, partition: int | None, span: Any
) -> tuple[str, str] | None:
    """
    Return how an open transaction contradicts its coordinator: symbol and reason, or None.

    Parameters
    ----------
    owner : dict or None
        The row of its producer, one of `owners`.
    topic, partition
        The log of the transaction.
    span : TRANSACTION
    """
    if owner is None:
        return UNKNOWN_PRODUCER, "no transactional id has this producer id"
    name, epoch = owner["transactional_id"], owner["producer_epoch"]
    if owner["status"] not in (_ONGOING, *_ENDING):
        return "TRANSACTION_ENDED", f"{name!r} has the state {owner['status']}"
    added: defaultdict[str, set[int]] = defaultdict(set)
    for one in owner["partitions"]:
        added[one["topic"]].update(one["partitions"])
    if partition not in added[topic or ""]:
        return (
            "PARTITION_NOT_ADDED",
            f"the transaction of {name!r} ({owner['status']}) does not contain the partition",
        )
    # A coordinator that aborts a timed out transaction raises the epoch first.
    if owner["status"] == _ONGOING and span["producer_epoch"] != epoch:
        return (
            "OTHER_EPOCH",
            f"{name!r} has the epoch {epoch}, not {span['producer_epoch']}",
        )
    return None


class Coordinators:
    """
    What coordinators have recorded in the data dirs of logs.

    ``__transaction_state`` of a data dir is read once, when the first log in it is asked about.

    Attributes
    ----------
    problems : Problems
        Why coordinators' states are not known, or not exactly.
    """

    def __init__(self) -> None:
        self.problems: Problems = NO_PROBLEMS
        self._owners: dict[Path, dict[int, Owner]] = {}
        self._lock = threading.Lock()

    def beside(self, log: PartitionDir) -> dict[int, Owner]:
        """Return the rows of transactional ids in the data dir of a log, by producer id."""
        data_dir = log.folder.parent
        with self._lock:
            if data_dir.path not in self._owners:
                self._owners[data_dir.path] = self._read(data_dir)
            return self._owners[data_dir.path]

    def _read(self, data_dir: object) -> dict[int, Owner]:
        from kafkascan.internal_topics.transaction_states import read_transaction_state

        if not isinstance(data_dir, FolderTree):
            return {}
        try:
            inside = [partition_of(one) for one in data_dir.folders()]
            logs = [one for one in inside if one.topic == TRANSACTIONS_TOPIC and one.is_log]
            if not logs:
                return {}
            states = read_transaction_state(LogDir(data_dir.path, logs))
        except (KafkaScanError, OSError) as error:
            self.problems += [problem_of(error, str(data_dir.path), topic=TRANSACTIONS_TOPIC)]
            return {}
        self.problems += states.problems
        return owners(states)


def is_within_timeout(owner: Owner | None, log: PartitionDir, span: Any, now_ms: int) -> bool:
    """
    Return whether a coordinator has an open transaction as ongoing, and will end it in time.

    Parameters
    ----------
    owner : dict or None
        The row of its producer, one of `owners`.
    log : PartitionDir
        The log of the transaction.
    span : TRANSACTION
    now_ms : int
        The time relative to which it is old.
    """
    if owner is None or not owner["is_exact"]:
        return False
    age = age_at_coordinator(owner, now_ms)
    if age is None or age > int(owner["timeout_ms"]):
        return False
    return contradiction(owner, log.topic, log.partition, span) is None


def age_at_coordinator(owner: Owner, now_ms: int) -> int | None:
    """Return how long a transaction has been ongoing for its coordinator; None if it is not."""
    start = int(owner["start_timestamp"])
    if owner["status"] != _ONGOING or start < 0:
        return None
    # The coordinator may have written after the latest write to the log.
    return max(0, now_ms - start)


def coordinator_clause(owner: Owner | None, now_ms: int) -> str:
    """Return the words of a sentence about an open transaction: state, age and timeout."""
    if owner is None:
        return ""
    age = age_at_coordinator(owner, now_ms)
    since = "" if age is None else f" for {age_text(age)}"
    return (
        f"; its coordinator has {owner['transactional_id']!r} as {owner['status']}{since}"
        f" (timeout {age_text(int(owner['timeout_ms']))})"
    )
