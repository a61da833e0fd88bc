"""What an audit finds when files of a broker's data dir are damaged, lost or exchanged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.audits import TRUE_ALARMS
from tests.support.paths import GOLDEN

_SMALL, _OTHER, _TRANSACTIONS = "small-segments-0", "idempotent-0", "transactions-0"
_FIRST, _SECOND, _LAST = (f"{base:020}" for base in (0, 24, 468))
_EPOCHS, _METADATA = "leader-epoch-checkpoint", "partition.metadata"

Damage = Callable[[Path], object]


def _flip(name: str, position: int) -> Damage:
    def damage(data_dir: Path) -> None:
        data = bytearray((data_dir / name).read_bytes())
        data[position] ^= 1 << random.Random(position).randrange(8)
        (data_dir / name).write_bytes(data)

    return damage


def _write(name: str, data: bytes) -> Damage:
    return lambda data_dir: (data_dir / name).write_bytes(data)


def _cut(name: str, size: int) -> Damage:
    return lambda data_dir: (data_dir / name).write_bytes((data_dir / name).read_bytes()[:-size])


def _append(name: str, data: bytes) -> Damage:
    return lambda data_dir: (data_dir / name).write_bytes((data_dir / name).read_bytes() + data)


def _copy(name: str, new: str) -> Damage:
    return lambda data_dir: shutil.copy(data_dir / name, data_dir / new)


def _rename(name: str, new: str) -> Damage:
    return lambda data_dir: (data_dir / name).rename(data_dir / new)


def _remove(pattern: str) -> Damage:
    def damage(data_dir: Path) -> None:
        for path in data_dir.glob(pattern):
            path.unlink()

    return damage


def _swap(name: str, other: str) -> Damage:
    def damage(data_dir: Path) -> None:
        one, two = (data_dir / name).read_bytes(), (data_dir / other).read_bytes()
        (data_dir / name).write_bytes(two)
        (data_dir / other).write_bytes(one)

    return damage


def _offset(checkpoint: str, offset: int) -> Damage:
    def damage(data_dir: Path) -> None:
        known = ks.broker_state.read_offset_checkpoint(data_dir / checkpoint)
        known["small-segments", 0] = offset
        ks.broker_state.write_offset_checkpoint(data_dir / checkpoint, known)

    return damage


def _merge(data_dir: Path) -> None:
    """Leave a segment behind that the one before it contains already."""
    first, second = (data_dir / _SMALL / f"{base}.log" for base in (_FIRST, _SECOND))
    first.write_bytes(first.read_bytes() + second.read_bytes())


SEEN: dict[str, tuple[Damage, set[str]]] = {
    "a bit in a header": (_flip(f"{_SMALL}/{_SECOND}.log", 23), {"CHECKSUM_MISMATCH"}),
    "a bit in a length": (_flip(f"{_SMALL}/{_SECOND}.log", 8), {"CUT_SEGMENT"}),
    "a bit in records": (_flip(f"{_SMALL}/{_SECOND}.log", 90), {"CHECKSUM_MISMATCH"}),
    "the end of the log, in a batch": (_cut(f"{_SMALL}/{_LAST}.log", 40), {"TORN_TAIL"}),
    "the end of a segment": (_cut(f"{_SMALL}/{_SECOND}.log", 40), {"CUT_SEGMENT"}),
    "zeros after a segment": (_append(f"{_SMALL}/{_SECOND}.log", bytes(512)), {"CUT_SEGMENT"}),
    "zeros for a log": (_write(f"{_OTHER}/{_FIRST}.log", bytes(4096)), {"NO_BATCHES"}),
    "an empty log": (_write(f"{_OTHER}/{_FIRST}.log", b""), {"ENDS_EARLY"}),
    "a missing segment": (_remove(f"{_SMALL}/{_SECOND}.*"), {"OFFSET_GAP"}),
    "a missing .log": (_remove(f"{_SMALL}/{_SECOND}.log"), {"OFFSET_GAP", "ORPHAN"}),
    "the missing last segment": (_remove(f"{_SMALL}/{_LAST}.*"), {"ENDS_EARLY"}),
    "a garbage .index": (_write(f"{_SMALL}/{_SECOND}.index", b"garbage!" * 4), {"OUT_OF_ORDER"}),
    "an odd .index": (_cut(f"{_SMALL}/{_SECOND}.index", 3), {"ODD_INDEX_SIZE"}),
    "the .index of another segment": (
        _copy(f"{_SMALL}/{_FIRST}.index", f"{_SMALL}/{_SECOND}.index"),
        {"WRONG_POSITION"},
    ),
    "a garbage .timeindex": (
        _write(f"{_SMALL}/{_SECOND}.timeindex", b"garbage text" * 4),
        {"OUT_OF_ORDER"},
    ),
    "an odd .timeindex": (_cut(f"{_SMALL}/{_SECOND}.timeindex", 5), {"ODD_INDEX_SIZE"}),
    "the .timeindex of another segment": (
        _copy(f"{_SMALL}/{_FIRST}.timeindex", f"{_SMALL}/{_SECOND}.timeindex"),
        {"TIMESTAMP_MISMATCH"},
    ),
    "a missing .txnindex": (_remove(f"{_TRANSACTIONS}/*.txnindex"), {"TXN_INDEX_MISMATCH"}),
    "an odd .txnindex": (_cut(f"{_TRANSACTIONS}/{5:020}.txnindex", 3), {"TXN_INDEX_MISMATCH"}),
    "a shortened .txnindex": (
        _cut(f"{_TRANSACTIONS}/{5:020}.txnindex", 34),
        {"TXN_INDEX_MISMATCH"},
    ),
    "a garbage .txnindex": (
        _write(f"{_TRANSACTIONS}/{5:020}.txnindex", b"garbage" * 9),
        {"BAD_TXN_INDEX_VERSION"},
    ),
    "a garbage .snapshot": (
        _write(f"{_TRANSACTIONS}/{41:020}.snapshot", b"garbage" * 9),
        {"BAD_SNAPSHOT"},
    ),
    "a shortened .snapshot": (_cut(f"{_TRANSACTIONS}/{41:020}.snapshot", 9), {"BAD_SNAPSHOT"}),
    "a stale .snapshot": (
        _copy(f"{_TRANSACTIONS}/{5:020}.snapshot", f"{_TRANSACTIONS}/{41:020}.snapshot"),
        {"SNAPSHOT_MISMATCH"},
    ),
    "garbage leader epochs": (_write(f"{_SMALL}/{_EPOCHS}", b"garbage"), {"BAD_CHECKPOINT"}),
    "leader epochs of the future": (
        _write(f"{_SMALL}/{_EPOCHS}", b"0\n2\n0 0\n1 9999\n"),
        {"ENDS_EARLY"},
    ),
    "wrong leader epochs": (_write(f"{_SMALL}/{_EPOCHS}", b"0\n1\n7 0\n"), {"EPOCH_MISMATCH"}),
    "missing leader epochs": (_remove(f"{_SMALL}/{_EPOCHS}"), {"EPOCHS_BEHIND"}),
    "garbage partition.metadata": (_write(f"{_SMALL}/{_METADATA}", b"?"), {"BAD_CHECKPOINT"}),
    "the partition.metadata of another topic": (
        _swap(f"{_SMALL}/{_METADATA}", f"{_OTHER}/{_METADATA}"),
        {"UNASSIGNED_LOG"},
    ),
    "exchanged logs of two partitions": (
        _swap(f"partitions-0/{_FIRST}.log", f"partitions-1/{_FIRST}.log"),
        {"OFFSET_NOT_IN_LOG", "ENDS_EARLY"},
    ),
    "exchanged logs of two topics": (
        _swap(f"{_SMALL}/{_FIRST}.log", f"{_OTHER}/{_FIRST}.log"),
        {"SNAPSHOT_MISMATCH", "WRONG_POSITION"},
    ),
    "exchanged segments": (
        _swap(f"{_SMALL}/{_FIRST}.log", f"{_SMALL}/{_SECOND}.log"),
        {"OFFSET_OUT_OF_SEGMENT"},
    ),
    "a segment twice": (
        _copy(f"{_SMALL}/{_FIRST}.log", f"{_SMALL}/{7:020}.log"),
        {"OFFSET_OUT_OF_SEGMENT"},
    ),
    "segments that overlap": (_merge, {"OFFSET_OVERLAP"}),
    "a wrong offset in a name": (
        _rename(f"{_SMALL}/{_SECOND}.log", f"{_SMALL}/{30:020}.log"),
        {"OFFSET_OUT_OF_SEGMENT"},
    ),
    "a name without an offset": (
        _copy(f"{_SMALL}/{_FIRST}.log", f"{_SMALL}/copy.log"),
        {"FOREIGN_NAME"},
    ),
    "a garbage checkpoint": (_write("recovery-point-offset-checkpoint", b"?"), {"UNREADABLE"}),
    "a recovery point beyond the end": (
        _offset("recovery-point-offset-checkpoint", 9999),
        {"ENDS_EARLY"},
    ),
    "a high watermark beyond the end": (
        _offset("replication-offset-checkpoint", 9999),
        {"ENDS_EARLY"},
    ),
    "a log start offset beyond the end": (
        _offset("log-start-offset-checkpoint", 9999),
        {"ENDS_EARLY"},
    ),
}

UNSEEN: dict[str, Damage] = {
    "zeros after the log: a broker preallocates files": _append(
        f"{_SMALL}/{_LAST}.log", bytes(512)
    ),
    "a missing first segment: retention deletes it": _remove(f"{_SMALL}/{_FIRST}.*"),
    "a missing .index: a broker rebuilds it": _remove(f"{_SMALL}/{_SECOND}.index"),
    "a missing .timeindex: a broker rebuilds it": _remove(f"{_SMALL}/{_SECOND}.timeindex"),
    "a shortened .index: fewer entries are slower, and right": _cut(f"{_SMALL}/{_SECOND}.index", 8),
    "a missing .snapshot: a broker rebuilds it": _remove(f"{_TRANSACTIONS}/{41:020}.snapshot"),
    "a missing partition.metadata: brokers of old versions write none": _remove(
        f"{_SMALL}/{_METADATA}"
    ),
    "a low recovery point: a broker recovers more": _offset("recovery-point-offset-checkpoint", 0),
}
"""Damage that is no alarm, with the reason: the files are those of a healthy data dir, too."""


def _audited(damage: Damage, tmp_path: Path) -> set[str]:
    """Return the symbols of the alarms that damage adds to those of the intact data dir."""
    data_dir = Path(shutil.copytree(GOLDEN / "kafka-4.4.0/data", tmp_path / "data"))
    damage(data_dir)
    alarms = ks.audit(data_dir, now_ms="2026-11-22").alarms
    return {
        one.symbol for one in alarms if (one.topic, one.symbol) not in TRUE_ALARMS["kafka-4.4.0"]
    }


@pytest.mark.parametrize("name", SEEN)
def test_damage_is_an_alarm(name: str, tmp_path: Path) -> None:
    damage, symbols = SEEN[name]
    assert symbols <= _audited(damage, tmp_path)


@pytest.mark.parametrize("name", UNSEEN)
def test_what_nobody_can_see_is_no_alarm(name: str, tmp_path: Path) -> None:
    assert _audited(UNSEEN[name], tmp_path) == set()


def test_an_intact_copy_has_no_alarm(tmp_path: Path) -> None:
    assert _audited(lambda data_dir: None, tmp_path) == set()
