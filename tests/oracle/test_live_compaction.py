"""Copies of a compacted log with transactions, made while it is cleaned, are healthy."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.brokers import KafkaBroker
from tests.oracle.build import ClassPaths
from tests.oracle.clients import JavaClients, Message, Writer
from tests.oracle.jvm import wait_until
from tests.oracle.live_recovery import SHORT_SESSIONS
from tests.oracle.stage import Stage

pytestmark = pytest.mark.oracle

_TOPIC = "cleaned-while-written"
_CONFIG = {
    **SHORT_SESSIONS,
    "producer.id.expiration.ms": "6000",
    "producer.id.expiration.check.interval.ms": "1000",
}
_TOPIC_CONFIG = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "900",
    "min_cleanable_dirty_ratio": "0.001",
    "delete_retention_ms": "2000",
    "file_delete_delay_ms": "0",
}
_ROUNDS = 10


@dataclass
class Play:
    """Producers that write the same keys again and again, in and outside of transactions."""

    stage: Stage
    dice: random.Random = field(default_factory=lambda: random.Random(4))
    number: int = 0

    def __post_init__(self) -> None:
        self.idempotent: list[Writer] = [
            self.stage.java_producer(enable_idempotence="true"),
            self.stage.java_producer(enable_idempotence="true", compression_type="zstd"),
        ]
        # Transactions of the Java client raise the producer's epoch, those of librdkafka do not.
        self.transactional: list[Writer] = [
            self.stage.java_producer(transactional_id="cleaned-0"),
            self.stage.librdkafka_producer(transactional_id="cleaned-1"),
            self.stage.librdkafka_producer(transactional_id="cleaned-2"),
        ]

    def round(self) -> None:
        """Write a few segments."""
        once = self.stage.java_producer(enable_idempotence="true")
        once.write(self._messages())
        once.close()
        for _ in range(14):
            if self.dice.random() < 0.4:
                self.dice.choice(self.idempotent).write(self._messages())
                continue
            writer = self.dice.choice(self.transactional)
            writer.begin()
            for _ in range(self.dice.randrange(1, 3)):
                writer.write(self._messages())
            (writer.abort if self.dice.random() < 0.5 else writer.commit)()

    def _messages(self) -> list[Message]:
        found = []
        for _ in range(self.dice.randrange(1, 5)):
            self.number += 1
            value = None if self.dice.random() < 0.2 else b"v" * self.dice.randrange(60)
            found.append(Message(_TOPIC, value, b"%d" % self.dice.randrange(12)))
        return found


@pytest.fixture(scope="module")
def copies(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return copies of a data dir: while its broker runs, was killed, and was stopped."""
    root = tmp_path_factory.mktemp("compaction")
    found: list[Path] = []

    def copy(name: str) -> None:
        folder = root / "copies" / name
        wait_until("a copy", partial(_is_copied, broker.data_dir, folder))
        found.append(folder)

    with KafkaBroker(root, class_paths, _CONFIG) as broker:
        with JavaClients(class_paths.broker, broker.bootstrap_servers, root / "clients") as java:
            stage = Stage(broker, java)
            stage.create_topic(_TOPIC, **_TOPIC_CONFIG)
            play = Play(stage)
            for number in range(_ROUNDS):
                before = stage.cleaned_up_to(_TOPIC)
                play.round()
                wait_until("the cleaner", partial(_is_cleaned, stage, before))
                time.sleep(1)
                copy(f"running-{number}")
        broker.kill()
        copy("killed")
        broker.start()
        time.sleep(3)
        copy("restarted")
        broker.stop()
        copy("stopped")
    return found


def _is_copied(data_dir: Path, folder: Path) -> bool:
    """Copy a data dir, unless its broker renames or deletes one of the files meanwhile."""
    try:
        shutil.copytree(data_dir, folder)
    except shutil.Error:
        shutil.rmtree(folder)
        return False
    return True


def _is_cleaned(stage: Stage, before: int) -> bool:
    return stage.cleaned_up_to(_TOPIC) > before


def test_the_cleaner_removed_batches_of_transactions(copies: list[Path]) -> None:
    logs = [
        np.concatenate([chunk.batches for chunk in ks.scan_log_dir(one / f"{_TOPIC}-0")])
        for one in copies
    ]
    gone = np.concatenate([
        before[~np.isin(before["base_offset"], after["base_offset"])]
        for before, after in itertools.pairwise(logs)
    ])  # fmt: skip
    is_control, in_transaction = ks.batches.is_control(gone), ks.batches.is_transactional(gone)
    assert is_control.any()
    assert (in_transaction & ~is_control).any()
    assert (~in_transaction).any()


def test_audits_have_no_alarms(copies: list[Path]) -> None:
    for copy in copies:
        found = ks.audit(copy, deep=True)
        assert found.alarms == [], f"{copy.name}: {found}"


def test_copies_do_not_differ(copies: list[Path]) -> None:
    for one, other in itertools.permutations(copies, 2):
        (left, right) = (copy / f"{_TOPIC}-0" for copy in (one, other))
        found = ks.diff_logs(left, right)
        assert found.is_same, f"{one.name} and {other.name}: {found}"
