"""A truncation leaves stale entries in the indexes of a running broker: no damage to an audit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkascan as ks
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import LoadArguments, Rebuild
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.oracle

_T0 = 1_714_000_000_000
_ARGUMENTS = LoadArguments(interval_bytes=1)
"""Every batch but the first has an entry in the index."""


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("truncated")) as running:
        yield running


def batches(
    dice: random.Random, first: int, count: int, epoch: int, sizes: tuple[int, ...]
) -> bytes:
    log, offset = b"", first
    for _ in range(count):
        records = [
            RecordV2(value=b"v" * dice.choice(sizes), offset_delta=n)
            for n in range(dice.choice((1, 3)))
        ]
        time = _T0 + offset + dice.choice((0, 0, 500))
        log += batch_of(
            records, base_offset=offset, partition_leader_epoch=epoch,
            base_timestamp=time, max_timestamp=time,
        )  # fmt: skip
        offset += len(records)
    return log


@pytest.mark.parametrize("sizes", [(20,), (5, 50, 400)])
@pytest.mark.parametrize("seed", range(8))
def test_stale_entries_are_a_note(
    seed: int, sizes: tuple[int, ...], rebuild: Rebuild, tmp_path: Path
) -> None:
    dice = random.Random(seed)
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = folder / f"{0:020}.log"
    log.write_bytes(batches(dice, 0, 60, 0, sizes))
    cut = int(dice.choice(ks.scan_batches(log).batches["base_offset"][20:40]))
    again = batches(dice, cut, dice.randrange(0, 12), 1, sizes)
    running = rebuild.truncate(folder, cut, again, _ARGUMENTS)
    for kind in ("index", "timeindex"):
        data = (running / f"{0:020}.{kind}").read_bytes()
        known = ks.read_index(running / f"{0:020}.{kind}")
        closed = ks.read_index(folder / f"{0:020}.{kind}")
        # Kafka leaves the entries after its own end of the index.
        assert len(known) > len(closed)
        assert len(data) > known.nbytes
    found = ks.audit(running, now_ms=_T0)
    assert found.alarms == [], found
    assert [one.file for one in found.findings if one.symbol == "STALE"] == [
        f"{0:020}.index", f"{0:020}.timeindex",
    ]  # fmt: skip
    assert "STALE" not in {one.symbol for one in ks.audit(folder, now_ms=_T0).findings}


def test_damage_before_right_entries_is_an_error(rebuild: Rebuild, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batches(random.Random(1), 0, 60, 0, (20,)))
    rebuild.load(folder, _ARGUMENTS)
    loaded = folder.with_name("t-0.loaded")
    index = loaded / f"{0:020}.index"
    assert {one.symbol for one in ks.audit(loaded, now_ms=_T0).findings} <= {"PADDED", "INCOMPLETE"}
    data = bytearray(index.read_bytes())
    data[20 * 8 + 7] ^= 1
    index.write_bytes(data)
    assert {one.symbol for one in ks.audit(loaded, now_ms=_T0).alarms} == {"WRONG_POSITION"}
