"""Offset and time indexes: compared with those of Kafka; entries that do not fit."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.broker_state.indexes import IndexBuilder
from tests.support.paths import GOLDEN
from tests.support.segments import T0, Rig, batch_v2
from tests.support.warm_process import run_warm

NAME = "00000000000000001000"


def example() -> bytes:
    """Eight batches of 142 bytes, three records each, from offset 1000."""
    times = (1002, 4002, 2002, 3002, 6002, 5002, 9002, 8002)
    return b"".join(
        batch_v2(
            bytes(81), base_offset=1000 + 3 * i, last_offset_delta=2, records_count=3,
            max_timestamp=T0 + time,
        )
        for i, time in enumerate(times)
    )  # fmt: skip


def test_entries_of_the_example() -> None:
    batches = ks.scan_batches(example()).batches
    offsets = ks.build_offset_index(batches, base_offset=1000, interval_bytes=200)
    times = ks.build_time_index(batches, base_offset=1000, interval_bytes=200)
    assert offsets.tobytes().hex(" ", 8) == "000000080000011c 0000000e00000238 0000001400000354"
    assert times.tobytes().hex() == (
        "0000018f125c83a2000000050000018f125c8b720000000e0000018f125c972a00000014"
    )


# index.interval.bytes of the scenarios that set it; otherwise it is the default of Kafka.
INTERVALS = {"small-segments-0": 200, "being-written-0": 200}
# A broker that restarts in the middle of a segment counts from there.
INTERRUPTED = {("leader-epochs-0", "timeindex")}


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_the_indexes_that_brokers_appended_to(kind: str) -> None:
    build = {"index": ks.build_offset_index, "timeindex": ks.build_time_index}[kind]
    same = 0
    for log in sorted((GOLDEN / "kafka-4.4.0").rglob("*.log")):
        path, topic = log.with_suffix(f".{kind}"), log.parent.name
        if (topic, kind) in INTERRUPTED or not path.exists():
            continue
        built = build(
            ks.scan_batches(log).batches,
            base_offset=int(log.name[:20]),
            interval_bytes=INTERVALS.get(topic, 4096),
        )
        assert np.array_equal(ks.read_index(path), built), path
        if path.stat().st_size == built.nbytes > 0:  # not preallocated, as active ones are
            assert path.read_bytes() == built.tobytes()
            same += 1
    assert same > 20


def test_offsets_that_do_not_fit() -> None:
    batches = ks.scan_batches(example()).batches
    with pytest.raises(ks.IndexOverflowError, match=r"batches\[0\].*OFFSET_OVERFLOW"):
        ks.build_offset_index(batches, base_offset=2000)
    far = batches.copy()
    far["base_offset"] += 2**31
    with pytest.raises(OverflowError):
        ks.build_time_index(far, base_offset=0)
    swapped = batches[[0, 1, 2, 7, 5, 6, 3, 4]].copy()
    swapped["position"] = batches["position"]
    with pytest.raises(ks.format.BatchTableError, match="OFFSETS_NOT_ASCENDING"):
        ks.build_offset_index(swapped, base_offset=1000, interval_bytes=100)


def test_write_and_read(tmp_path: Path) -> None:
    batches = ks.scan_batches(example()).batches
    for name, build in (
        (f"{NAME}.index", ks.build_offset_index),
        (f"{NAME}.timeindex.deleted", ks.build_time_index),
    ):
        entries = build(batches, base_offset=1000, interval_bytes=200)
        path = tmp_path / name
        path.write_bytes(b"before")
        ks.write_index(path, entries)
        assert path.read_bytes() == entries.tobytes()
        assert np.array_equal(ks.read_index(path), entries)
        path.write_bytes(entries.tobytes() + bytes(entries.itemsize * 50))
        assert np.array_equal(ks.read_index(path), entries)
        path.write_bytes(entries.tobytes() + b"odd")
        with pytest.raises(ks.CorruptIndexError, match="ODD_INDEX_SIZE"):
            ks.read_index(path)
    with pytest.raises(TypeError):
        ks.write_index(tmp_path / f"{NAME}.index", entries)
    with pytest.raises(ValueError, match="suffix is not"):
        ks.read_index(tmp_path / f"{NAME}.log")
    (tmp_path / f"{NAME}.index").write_bytes(b"")
    assert len(ks.read_index(tmp_path / f"{NAME}.index")) == 0
    nothing = ks.build_time_index(batches[:0], base_offset=0)
    assert nothing.tobytes() == b""


def test_a_base_offset_that_cannot_be_the_segments() -> None:
    batches = ks.scan_batches(ks.build_batches(value=[b"a", b"b"], offset=3)).batches
    for build in (ks.build_offset_index, ks.broker_state.build_time_index):
        with pytest.raises(ks.format.IndexOverflowError) as refused:
            build(batches, base_offset=5)
        assert "the last offset 4 is below the segment's base offset 5" in str(refused.value)
        assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)
        with pytest.raises(ks.format.IndexOverflowError, match="exceeds the 31 bits"):
            build(restamped(batches, 1 << 40), base_offset=0)
        for wrong in (-1, 1 << 63):
            with pytest.raises(ValueError, match="base_offset"):
                build(batches, base_offset=wrong)
        for odd in (0.5, "x", None):
            with pytest.raises(TypeError, match="base_offset must be an integer"):
                build(batches, base_offset=odd)
            with pytest.raises(TypeError, match="interval_bytes must be an integer"):
                build(batches, base_offset=0, interval_bytes=odd)


def restamped(batches: ks.BatchTable, offset: int) -> ks.BatchTable:
    moved = batches.copy()
    moved["base_offset"] = offset
    return moved


def wide_entries(count: int, *, positions_from: int = 4_100) -> bytes:
    """Entries with positions of 8 bytes (KIP-1333)."""
    return b"".join(
        struct.pack(">iq", 10 * (row + 1), positions_from + 5_000 * row) for row in range(count)
    )


@pytest.mark.parametrize(
    "data",
    [
        wide_entries(2),
        wide_entries(3),
        wide_entries(200),
        wide_entries(4) + bytes(12 * 50),
        wide_entries(3, positions_from=1) + struct.pack(">iq", 50, 2**33),
    ],
)
def test_entries_of_a_later_layout_are_not_misread(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(data)
    with pytest.raises(ks.CorruptIndexError, match="UNKNOWN_INDEX_LAYOUT") as caught:
        ks.read_index(path)
    assert caught.value.path == str(path)
    batches = ks.scan_batches(example()).batches
    (found,) = ks.check_index(path, batches)
    assert (found.symbol, found.severity) == ("UNKNOWN_INDEX_LAYOUT", ks.Severity.WARNING)


@pytest.mark.parametrize("changed", [0, 4, 8, 12, 16, 20])
@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1, 2**31 - 1])
def test_damaged_entries_are_no_later_layout(tmp_path: Path, changed: int, value: int) -> None:
    data = bytearray(b"".join(struct.pack(">ii", 10 * row, 4_100 * row) for row in range(1, 9)))
    data[changed : changed + 4] = struct.pack(">i", value)
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(data)
    assert len(ks.read_index(path)) == 8


_CHECK_AT_THE_END = """
    import signal, sys
    from pathlib import Path
    import numpy as np
    import kafkascan as ks
    from tests.support.segments import batch_v2

    signal.setitimer(signal.ITIMER_PROF, 10)
    folder, first, relative = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    log = batch_v2(base_offset=first) + batch_v2(base_offset=first + 1)
    batches = ks.scan_batches(log).batches
    offsets = np.array([(relative, len(log) // 2)], ks.OFFSET_INDEX_ENTRY)
    times = np.array([(batches["max_timestamp"][0], 0)], ks.TIME_INDEX_ENTRY)
    for kind, entries in (("index", offsets), ("timeindex", times)):
        path = folder / f"{first:020}.{kind}"
        for some in (entries, entries[:0]):
            ks.write_index(path, some)
            print([one.symbol for one in ks.check_index(path, batches)])
"""


@pytest.mark.parametrize("last", [2**63 - 2, 2**63 - 1])
def test_entries_of_the_last_offsets(last: int, tmp_path: Path) -> None:
    """The last offset is no end of a list: the check ends, and finds what it finds elsewhere."""
    for relative, expected in ((1, "[]"), (0, "['WRONG_POSITION']")):
        usual = run_warm(_CHECK_AT_THE_END, tmp_path, 1000, relative)
        done = run_warm(_CHECK_AT_THE_END, tmp_path, last - 1, relative)
        assert done.returncode == 0, done.stderr
        assert done.stdout == usual.stdout
        assert done.stdout.splitlines()[0] == expected


@pytest.mark.parametrize("name", [f"{10**20 - 1}.index", "\N{SUPERSCRIPT TWO}.index"])
def test_a_name_without_an_offset_says_nothing_about_it(name: str, tmp_path: Path) -> None:
    batches = ks.scan_batches(example()).batches
    entries = ks.build_offset_index(batches, base_offset=1000, interval_bytes=200)
    ks.write_index(tmp_path / name, entries)
    base_offset = int(batches["base_offset"][0])
    expected = ks.check_index(entries, batches, base_offset=base_offset)
    assert ks.check_index(tmp_path / name, batches) == expected


def test_times_that_go_back_at_the_end_of_a_segment_are_an_error() -> None:
    """The entry that closes a time index belongs to no row."""
    log = Rig().batches(4)
    for row, offset in ((2, 9), (3, 1)):
        log.set(row, "max_timestamp", T0 + row).set(row, "base_offset", offset).sign(row)
    batches = ks.scan_batches(log.log).batches
    interval = log.position_of(2) - 1
    builder = IndexBuilder(0, interval, "a.log")
    builder.add(batches)
    with pytest.raises(ks.format.BatchTableError) as caught:
        builder.finish()
    assert caught.value.position == log.position_of(3)


@pytest.mark.parametrize("base_offset", [-1, -(2**63) - 1, 2**63, 10**20])
def test_a_base_offset_that_is_none_is_refused(base_offset: int) -> None:
    batches = ks.scan_batches(Rig().batches(2).log).batches
    entries = ks.build_offset_index(batches, base_offset=0, interval_bytes=1)
    with pytest.raises(ValueError, match="base_offset"):
        ks.check_index(entries, batches, base_offset=base_offset)
