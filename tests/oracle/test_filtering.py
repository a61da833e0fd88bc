"""Filtered logs equal Kafka's bytes; with compression, its records and headers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.oracle.rewrites import RefusedError, Rewrites
from tests.support.log_corpus import NONE, random_log
from tests.support.segments import T0

pytestmark = pytest.mark.oracle

_GOLDEN = sorted(Path(__file__).parents[1].glob("golden/*/data/*/*.log"))
_ROUNDS = 250
_NOW, _RETENTION_MS = T0 + 10_000, 86_400_000

Log = tuple[bytes, np.ndarray]


def _logs(dice: random.Random, *, is_compressed: bool) -> list[bytes]:
    codecs = (NONE, 1, 2, 3, 4) if is_compressed else (NONE,)
    found = [random_log(dice, codecs=codecs, batches=9) for _ in range(_ROUNDS)]
    for path in _GOLDEN:
        data = path.read_bytes()
        scan = ks.scan_batches(data, on_corrupt="stop")
        is_plain = not ks.batches.compression_type(scan.batches).any()
        if 0 < scan.valid_bytes < 1 << 20 and (is_plain or is_compressed):
            found.append(data[: scan.valid_bytes])
    assert len(found) > _ROUNDS + 10
    return found


def _drawn(dice: random.Random, data: bytes) -> tuple[np.ndarray, list[int], list[str], list[bool]]:
    """A mask over records, the dropped offsets, and the retention of each batch."""
    records = ks.read_records(data, columns=["offset"])
    share = dice.choice([0.0, 0.1, 0.5, 0.9, 1.0])
    kept = np.array([dice.random() >= share for _ in range(len(records))], np.bool_)
    batches = ks.scan_batches(data).batches
    names = [
        dice.choice(["DELETE_EMPTY", "DELETE_EMPTY", "DELETE", "RETAIN_EMPTY"])
        if magic == 2 else "DELETE_EMPTY" for magic in batches["magic"].tolist()
    ]  # fmt: skip
    ends = [bool(flag and dice.random() < 0.5) for flag in ks.batches.is_control(batches).tolist()]
    # The mask covers the requested records only.
    asked = np.array([name != "DELETE" for name in names])[_row_of_record(batches, records)]
    return kept[asked], records["offset"][~kept].tolist(), names, ends


def _row_of_record(batches: np.ndarray, records: ks.RecordTable) -> np.ndarray:
    positions = records.batches["position"][records["batch"]]
    return np.searchsorted(batches["position"], positions)


def _both(
    rewrites: Rewrites, data: bytes, dice: random.Random
) -> tuple[bytes, bytes, ks.rewrite.FilterReport]:
    kept, dropped, names, ends = _drawn(dice, data)
    theirs = rewrites.filter(
        data, dropped, retention=names, emptyTransactions=ends,
        now=_NOW, deleteRetentionMs=_RETENTION_MS,
    )  # fmt: skip
    ours = ks.filter_records(
        data, keep=kept, retention=[ks.rewrite.BatchRetention[name] for name in names],
        ends_empty_transaction=ends, new_delete_horizon_ms=_NOW + _RETENTION_MS,
    )  # fmt: skip
    return ours.data, theirs, ours.report


def test_plain_batches_are_kafkas_byte_for_byte(rewrites: Rewrites) -> None:
    dice = random.Random("plain")
    rewritten = emptied = 0
    for data in _logs(dice, is_compressed=False):
        ours, theirs, report = _both(rewrites, data, dice)
        assert ours == theirs
        rewritten, emptied = rewritten + report.rewritten, emptied + report.emptied
    assert rewritten > 500
    assert emptied > 50


def test_compressed_batches_say_the_same(rewrites: Rewrites) -> None:
    dice = random.Random("compressed")
    differing = 0
    for data in _logs(dice, is_compressed=True):
        ours, theirs, _ = _both(rewrites, data, dice)
        if ours != theirs:
            differing += 1
            assert_same_content(ours, theirs)
    assert differing < _ROUNDS


def assert_same_content(ours: bytes, theirs: bytes) -> None:
    """Batches are equal except for compressed sizes; records are equal."""
    tables = [ks.scan_batches(data).batches.copy() for data in (ours, theirs)]
    for table, data in zip(tables, (ours, theirs), strict=True):
        assert ks.verify_crcs(data, table).all()
        for name in ("position", "batch_length", "crc"):
            table[name] = 0
    assert tables[0].tolist() == tables[1].tolist()
    records = [list(ks.read_records(data, control="include")) for data in (ours, theirs)]
    assert records[0] == records[1]


def test_empty_messages_are_refused_as_kafka_refuses_them(rewrites: Rewrites) -> None:
    data = random_log(random.Random(1), magics=(1,), batches=1)
    offsets = ks.read_records(data)["offset"].tolist()
    with pytest.raises(RefusedError, match="magic v2 and above"):
        rewrites.filter(data, offsets, retention=["RETAIN_EMPTY"])
    nothing = np.zeros(len(offsets), np.bool_)
    with pytest.raises(ValueError, match="magic v2 and above"):
        ks.filter_records(data, keep=nothing, retention=ks.rewrite.BatchRetention.RETAIN_EMPTY)
