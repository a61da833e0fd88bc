"""Damaged metadata logs and snapshots: rows and problems, never a crash."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.internal_topics.metadata.metadata_tables import TABLE_KEYS
from tests.damage.internal_topics.test_groups import mutated
from tests.support.internal_topics import TopicLog
from tests.support.paths import GOLDEN

_GOLDEN = GOLDEN / "kafka-4.4.0" / "data" / "__cluster_metadata-0"


@pytest.mark.parametrize("seed", range(20))
def test_mutated_records_are_rows_or_problems(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    log = TopicLog(tmp_path / _GOLDEN.name)
    for value in ks.read_records(_GOLDEN, columns=("value",)).items("value"):
        log.add((None, mutated(dice, value or b"")))
    found = ks.read_metadata(log.write().parent)
    for name in TABLE_KEYS:
        assert found[name].arrow_table().num_rows == len(found[name])
    assert found.is_exact == (not len(found.problems))
    assert ks.internal_topics.diff_metadata(found, ks.read_metadata(_GOLDEN)) is not None


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_of_a_snapshot_are_reported(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    folder = tmp_path / _GOLDEN.name
    shutil.copytree(_GOLDEN, folder)
    snapshot = max(folder.glob("*.checkpoint"))
    data = bytearray(snapshot.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    snapshot.write_bytes(data)
    changes = ks.internal_topics.diff_metadata(ks.read_metadata(folder), ks.read_metadata(_GOLDEN))
    assert not len(changes) or len(ks.read_metadata(folder).problems)
    ks.read_metadata(folder, as_of="2026-11-21T03:05:33")
