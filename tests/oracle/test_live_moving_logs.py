"""Commands on the data dir of a broker whose retention and cleaner work all the time."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkascan.format.errors import SourceReadError
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients
from tests.oracle.jvm import wait_until
from tests.oracle.stage import Stage
from tests.support import command_line
from tests.support.examples import seeds

pytestmark = pytest.mark.oracle

_RETAINED, _COMPACTED, _BOTH = "moving-retained", "moving-compacted", "moving-both"
_CONFIG = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "50",
}
_SMALL = {"internal_segment_bytes": "4000", "file_delete_delay_ms": "0"}
_CLEANED = {"min_cleanable_dirty_ratio": "0.001", "delete_retention_ms": "500"}
_TOPICS = {
    _RETAINED: {**_SMALL, "retention_ms": "1500"},
    _COMPACTED: {**_SMALL, **_CLEANED, "cleanup_policy": "compact"},
    _BOTH: {**_SMALL, **_CLEANED, "cleanup_policy": "compact,delete", "retention_ms": "3000"},
}
# PARTITION is the folder of a topic, DATA the data dir.
_COMMANDS = (
    "info PARTITION",
    "info DATA --by topic",
    "verify PARTITION",
    "batches PARTITION --verify",
    "batches PARTITION --tail 3",
    "records PARTITION",
    "records PARTITION --isolation read_committed",
    "records PARTITION --sort timestamp",
    "count PARTITION",
    "count DATA --deep",
    "txns PARTITION --state all",
    "txn-state DATA --show contradictions",
    "producers PARTITION --sample 2",
    "advise PARTITION --codec gzip",
    "sql QUERY PARTITION",
    "audit PARTITION --deep --alarms",
    "audit DATA --alarms",
    "index check PARTITION",
    "diff PARTITION PARTITION",
    "diff DATA DATA",
    "report PARTITION --output REPORT",
)
_QUERY = 'SELECT count(*), max("offset") FROM records'
# The cleaner replaced a file since it was listed.
_REPLACED = "another file took its place since the listing, as of a cleaner [CHANGED_WHILE_READ]"
COMMANDS_RUN = max(len(_COMMANDS), len(seeds(200)))
TASKS_RUN = len(seeds(300))


@contextmanager
def written(servers: str) -> Iterator[None]:
    """Write to the topics all the time, in and outside of transactions."""
    ended = threading.Event()

    def write() -> None:
        dice = random.Random(5)
        plain = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
        within = Producer({"bootstrap.servers": servers, "transactional.id": "moving"})
        within.init_transactions()
        for number in itertools.count():
            if ended.is_set():
                break
            transactional = number % 3 == 0
            producer = within if transactional else plain
            if transactional:
                producer.begin_transaction()
            for topic in _TOPICS:
                for _ in range(4):
                    producer.produce(topic, b"v" * dice.randrange(200), b"%d" % dice.randrange(40))
            if not transactional:
                producer.flush()
            elif dice.random() < 0.3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _has_moved(folder: Path) -> bool:
    logs = sorted(folder.glob("*.log"))
    return len(logs) > 1 and (int(logs[0].stem) > 0 or int(logs[1].stem) > 500)


def test_no_command_finds_something_wrong(class_paths: ClassPaths, tmp_path: Path) -> None:
    with KafkaBroker(tmp_path, class_paths, _CONFIG) as broker:
        servers = broker.bootstrap_servers
        with JavaClients(class_paths.broker, servers, tmp_path / "clients.log") as java:
            for topic, config in _TOPICS.items():
                Stage(broker, java).create_topic(topic, **config)
        folders = [broker.data_dir / f"{topic}-0" for topic in _TOPICS]
        with written(servers):
            for folder in folders:
                wait_until(f"{folder.name} moves", lambda folder=folder: _has_moved(folder))
            found = _findings(folders, tmp_path / "report.html")
            found += _findings_of_spark(folders)
    assert not found, "\n".join(map(str, found[:20]))


def _findings_of_spark(folders: list[Path]) -> list[tuple[str, int, str]]:
    """Read logs by Spark's tasks; return the errors of rows, besides that files are gone."""
    found = []
    pairs = itertools.cycle(itertools.product(("records", "batches", "segments"), folders))
    for view, folder in itertools.islice(pairs, TASKS_RUN):
        options = Options.parse({"path": str(folder), "view": view, "mode": "PERMISSIVE"})
        column = "_corrupt_record" if view == "records" else "error"
        try:
            rows = [
                row
                for task in plan_read(options)
                for batch in scan_task(task, options)
                for row in batch.select([column]).to_pylist()
            ]
        except (FileNotFoundError, SourceReadError):  # deleted, or replaced by the cleaner
            continue
        errors = [row[column] for row in rows if row[column] is not None]
        found += [(f"{view} of {folder.name}", 1, one) for one in errors if _REPLACED not in one]
    return found


def _findings(folders: list[Path], report: Path) -> list[tuple[str, int, str]]:
    """Run commands; return those that did not end with 0, with their codes and messages."""
    found = []
    pairs = itertools.cycle(itertools.product(_COMMANDS, folders))
    for command, folder in itertools.islice(pairs, COMMANDS_RUN):
        places = {"PARTITION": folder, "DATA": folder.parent, "QUERY": _QUERY, "REPORT": report}
        done = command_line.run(*(places.get(word, word) for word in command.split()))
        if done.returncode != 0:
            found.append(
                (f"{command} ({folder.name})", done.returncode, (done.stdout + done.stderr)[-2000:])
            )
    return found
