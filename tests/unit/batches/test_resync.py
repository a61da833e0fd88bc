"""Header scans that resume after damage."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches.resyncing import batch_search
from kafkascan.batches.resyncing.resync import scan_with_resync
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, Rig, batch_v2, message_v0, message_v1, sign


def kept(log: bytes | ks.Source) -> list[int]:
    return ks.scan_batches(log, on_corrupt="resync").batches["base_offset"].tolist()


def without(count: int, *gone: int) -> list[int]:
    return [one for one in range(count) if one not in gone]


def test_an_intact_log_has_the_rows_of_a_plain_scan() -> None:
    log = Rig().batches(50).log
    plain, resynced = ks.scan_batches(log), ks.scan_batches(log, on_corrupt="resync")
    assert np.array_equal(plain.batches, resynced.batches)
    assert (resynced.end, resynced.gaps, resynced.error) == (ks.ScanEnd.CLEAN, [], None)


@pytest.mark.parametrize("length", [-1, 0, 13, 48, 60, 2**30, 2**31 - 1])
@pytest.mark.parametrize("row", [0, 3, 8, 9])
def test_a_broken_length(length: int, row: int) -> None:
    rig = Rig().batches(10).set(row, "batch_length", length)
    scan = ks.scan_batches(rig.log, on_corrupt="resync")
    expected = without(10, row)
    assert scan.batches["base_offset"].tolist()[: len(expected)] == expected
    if row < 9:
        assert scan.end is ks.ScanEnd.CLEAN
        (gap,) = scan.gaps
        assert (gap.position, gap.size) == (rig.position_of(row), rig.size_of(row))
        assert gap.before_offset == row + 1
        assert gap.after_offset == (row - 1 if row else None)


def test_a_length_that_covers_valid_batches() -> None:
    for covered in (1, 2, 5):
        rig = Rig().batches(10)
        length = sum(rig.size_of(row) for row in range(3, 4 + covered)) - 12
        rig.set(3, "batch_length", length)
        assert kept(rig.log) == without(10, 3)
        assert ks.scan_batches(rig.log, on_corrupt="stop").batches["base_offset"].tolist() != (
            without(10, 3)
        )
    rig.set(3, "batch_length", len(rig.log) - rig.position_of(3) - 12)  # up to the end
    assert kept(rig.log) == without(10, 3)


def test_bytes_that_were_never_written() -> None:
    rig = Rig().batches(20, b"x" * 900)
    log = bytearray(rig.log)
    log[4096:8192] = bytes(4096)
    hurt = [
        row
        for row in range(20)
        if rig.position_of(row) < 8192 and rig.position_of(row) + rig.size_of(row) > 4096
    ]
    scan = ks.scan_batches(bytes(log), on_corrupt="resync")
    # The first batch still has an intact header: only verify_crcs detects its damage.
    assert scan.batches["base_offset"].tolist() in (without(20, *hurt), without(20, *hurt[1:]))
    verified = scan_with_resync(ks.Source(bytes(log)), 0, len(log), verify=True)
    assert verified.batches["base_offset"].tolist() == without(20, *hurt)


def test_junk_between_and_around_batches() -> None:
    parts = [batch_v2(b"payload", base_offset=row) for row in range(6)]
    junk = random.Random(3).randbytes(1000)
    log = junk + b"".join(parts[:3]) + junk + b"".join(parts[3:])
    scan = ks.scan_batches(log, on_corrupt="resync")
    assert scan.batches["base_offset"].tolist() == list(range(6))
    assert (scan.gaps[0].position, scan.gaps[0].size) == (0, 1000)
    torn = ks.scan_batches(log + parts[0][:40], on_corrupt="resync")
    assert (torn.end, torn.trailing_bytes) == (ks.ScanEnd.TORN_TAIL, 40)
    zeros = ks.scan_batches(log + bytes(5000), on_corrupt="resync")
    assert (zeros.end, zeros.trailing_bytes) == (ks.ScanEnd.ZERO_TAIL, 5000)
    odd = ks.scan_batches(log + junk, on_corrupt="resync")
    assert odd.end in (ks.ScanEnd.CORRUPT, ks.ScanEnd.TORN_TAIL)
    assert odd.valid_bytes == len(log)


def test_old_messages() -> None:
    parts = [message_v0(b"k", b"v" * 20, offset=row) for row in range(5)]
    parts += [message_v1(None, b"v" * 20, offset=row) for row in range(5, 10)]
    parts += [batch_v2(b"payload", base_offset=row) for row in range(10, 15)]
    for row in range(14):
        broken = [bytearray(part) for part in parts]
        broken[row][8] ^= 0x40
        assert kept(b"".join(map(bytes, broken))) == without(15, row)


def at_offset_1(**fields: int) -> bytes:
    return batch_v2(b"payload", **({"base_offset": 1, "last_offset_delta": 1} | fields))


def message_with(part: bytes, at: int, code: str, value: int) -> bytes:
    """Return a message with another field, and the checksum of its bytes."""
    changed = bytearray(part)
    struct.pack_into(f">{code}", changed, at, value)
    sign(changed)
    return bytes(changed)


V0, V1 = message_v0(None, b"v" * 20, offset=1), message_v1(None, b"v" * 20, offset=1)
KEYED = message_v1(b"key", b"v" * 20, offset=1)
POSSIBLE = {
    "as many records as offsets": at_offset_1(records_count=2),
    "fewer records than offsets": at_offset_1(records_count=0),
    "all attributes": at_offset_1(attributes=0x7C),
    "one offset before that of the batch after it": at_offset_1(base_offset=3),
    "message of magic 0": V0,
    "compressed message of magic 0": message_with(V0, 17, "B", 3),
    "message of magic 1": V1,
    "message of magic 1 with a time of its append": message_with(V1, 17, "B", 0x0B),
    "message with a key": KEYED,
    "message with null as its value": message_v1(b"key", None, offset=1),
    "empty message": message_v1(b"", b"", offset=1),
}
IMPOSSIBLE = {
    "last offset before the first one": at_offset_1(last_offset_delta=-1, records_count=0),
    "negative number of records": at_offset_1(records_count=-1),
    "more records than offsets": at_offset_1(records_count=3),
    "unknown attribute": at_offset_1(attributes=0x80),
    "unknown codec": at_offset_1(attributes=5),
    "offset before the damage": at_offset_1(base_offset=-2),
    "unknown attribute of magic 0": message_with(V0, 17, "B", 0x08),
    "unknown attribute of magic 1": message_with(V1, 17, "B", 0x10),
    "unknown codec of magic 1": message_with(V1, 17, "B", 4),
    "key size below -1": message_with(V1, 26, "i", -2),
    "key size below -1 in magic 0": message_with(V0, 18, "i", -5),
    "key that ends after the message": message_with(KEYED, 26, "i", 10_000),
    "key that leaves no room for a value": message_with(KEYED, 26, "i", 3 + 4 + 17),
    "value size below -1": message_with(message_v1(b"key", None, offset=1), 33, "i", -2),
    "value that ends before the message": message_with(V1, 30, "i", 19),
    "value that ends after the message": message_with(V1, 30, "i", 21),
}


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("what", [*POSSIBLE, *IMPOSSIBLE])
def test_after_damage_a_batch_needs_a_valid_checksum_and_a_possible_header(
    what: str, *, is_last: bool
) -> None:
    part = POSSIBLE.get(what) or IMPOSSIBLE[what]
    log = batch_v2(b"payload") + b"\xff" * 100 + part
    if not is_last:
        log += batch_v2(b"payload", base_offset=5)
    found = ks.scan_batches(log, on_corrupt="resync").batches["position"].tolist()
    expected = [0] + [168] * (what in POSSIBLE) + [168 + len(part)] * (not is_last)
    assert found == expected


# ---- batches within values -------------------------------------------------------------------


def nested(first: int, count: int = 3, *, epoch: int = 0) -> bytes:
    return b"".join(
        batch_v2(b"inner", base_offset=first + row, partition_leader_epoch=epoch)
        for row in range(count)
    )


def log_with(value: bytes, **fields: int) -> list[bytearray]:
    parts = [batch_of([RecordV2(value=b"outer")], base_offset=row) for row in range(10)]
    parts[4] = batch_of([RecordV2(value=value)], **({"base_offset": 4} | fields))
    return [bytearray(part) for part in parts]


@pytest.mark.parametrize("first", [0, 4, 5, 1000])
def test_batches_within_a_value_are_not_rows(first: int) -> None:
    log = b"".join(log_with(nested(first)))
    for verify in (False, True):
        found = scan_with_resync(ks.Source(log), 0, len(log), verify=verify)
        assert found.batches["base_offset"].tolist() == list(range(10))


@pytest.mark.parametrize("first", [0, 4, 5, 1000])
def test_batches_within_a_damaged_value_are_not_rows(first: int) -> None:
    parts = log_with(nested(first))
    parts[4][70] ^= 1  # the record before its value
    log = b"".join(parts)
    assert ks.scan_batches(log, on_corrupt="resync").batches["base_offset"].tolist() == (
        list(range(10))
    )
    found = scan_with_resync(ks.Source(log), 0, len(log), verify=True)
    assert found.batches["base_offset"].tolist() == without(10, 4)


@pytest.mark.parametrize("first", [0, 3, 5, 7, 1000])
def test_batches_within_a_value_without_a_header_displace_none(first: int) -> None:
    """The end of the value is unknown: what has a place between the batches is doubtful."""
    parts = log_with(nested(first))
    parts[4][8:12] = b"\xff" * 4
    scan = ks.scan_batches(b"".join(parts), on_corrupt="resync")
    assert set(without(10, 4)) <= set(scan.batches["base_offset"].tolist())
    nested_rows = scan.batches["base_offset"] == 4
    assert scan.is_doubtful[nested_rows].all()


def test_nested_batches_that_outweigh_the_end_of_the_log_are_doubtful() -> None:
    parts = log_with(nested(1000, count=200))[:6]
    parts[4][8:12] = b"\xff" * 4
    scan = ks.scan_batches(b"".join(parts), on_corrupt="resync")
    assert scan.batches["base_offset"].tolist() == [0, 1, 2, 3, *range(1000, 1200)]
    assert scan.is_doubtful.tolist() == [False] * 4 + [True] * 200


# ---- sources ---------------------------------------------------------------------------------


class Store:
    """An object in a store, read with read_at."""

    path = "store://object"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read_at(self, position: int, size: int) -> bytes:
        return self._data[position : position + min(size, 1000)]


def test_sources_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = random.Random(4)
    rig = Rig()
    for row in range(200):
        rig.batch(choice.randbytes(choice.randrange(2000)), base_offset=row)
    for row in (0, 20, 21, 90, 198):
        rig.set(row, "batch_length", choice.choice([0, -5, 2**31 - 1, 1 << 24, 777]))
    rig.set(50, "magic", 77)
    path = tmp_path / "0.log"
    path.write_bytes(rig.log)
    expected = kept(rig.log)
    assert expected == without(200, 0, 20, 21, 50, 90, 198)
    for window in (1 << 24, 8192, 3000):
        monkeypatch.setattr(batch_search, "_WINDOW", window)
        assert kept(str(path)) == expected  # type: ignore[arg-type]
        with ks.Source(path, memory_map=False) as source:
            assert kept(source) == expected
        assert kept(Store(rig.log)) == expected  # type: ignore[arg-type]


def test_a_source_can_be_closed_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(Rig().batches(9).set(4, "magic", 9).log)
    with ks.Source(path) as source:
        assert kept(source) == without(9, 4)


def test_start_and_stop() -> None:
    rig = Rig().batches(10).set(5, "magic", 9)
    start, stop = rig.position_of(2), rig.position_of(8)
    scan = ks.scan_batches(rig.log, start=start, stop=stop, on_corrupt="resync")
    assert scan.batches["base_offset"].tolist() == [2, 3, 4, 6, 7]
    assert (scan.end, scan.valid_bytes) == (ks.ScanEnd.CLEAN, stop - start)


def test_resync_is_for_scan_batches_only() -> None:
    with pytest.raises(ValueError, match="scan_batches"):
        ks.iter_batches(b"", on_corrupt="resync")
    with pytest.raises(ValueError, match="'resync'"):
        ks.scan_batches(b"", on_corrupt="skip")  # type: ignore[arg-type]


def test_the_repr_contains_gaps() -> None:
    scan = ks.scan_batches(Rig().batches(5).set(2, "magic", 9).log, on_corrupt="resync")
    assert "gaps     1, 68 bytes" in repr(scan)
    assert "68 bytes are skipped" in str(scan.gaps[0])


def test_forged_huge_lengths_do_not_exceed_the_reading_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_search, "_WINDOW", 4096)
    rig = Rig()
    for row in range(400):
        rig.batch(b"", base_offset=row, batch_length=20_000, crc=1)
    log = b"\xff" * 30 + rig.log + bytes(3000)
    found = scan_with_resync(ks.Source(Store(log)), 0, len(log))
    assert not found.is_exhaustive
    assert scan_with_resync(ks.Source(log), 0, len(log)).is_exhaustive


def test_many_lengths_that_reach_to_the_end() -> None:
    """Each forged header claims all following bytes; the search verifies them in linear time."""
    data, offset = b"", 0
    tail = 3000 * (61 + len(batch_v2()))
    for _ in range(3000):
        forged = bytearray(batch_v2(base_offset=offset)[:61])
        forged[8:12] = (tail - len(data) - 12).to_bytes(4)
        data += forged + batch_v2(base_offset=offset + 1)
        offset += 2
    for verify in (True, False):
        with ks.Source(data) as source:
            scan = scan_with_resync(source, 0, source.size, verify=verify)
            assert scan.batches["base_offset"].tolist() == list(range(1, offset, 2))


# ---- old data ----------------------------------------------------------------------------------


def test_old_batches_after_the_end_do_not_displace_the_log() -> None:
    """Garbage, then batches of lower offsets, as in a preallocated file that was used before."""
    log = Rig().batches(12).log
    assert kept(log + b"\1" * 8 + log[:165]) == list(range(12))
    rig = Rig().batches(1000)
    copy = bytes(rig.parts[5])
    assert kept(rig.log + bytes(512) + copy + bytes(4096)) == list(range(1000))
    assert kept(rig.log + bytes(512) + rig.log[: 70 * 68]) == list(range(1000))


def test_compacted_old_batches_do_not_displace_the_log() -> None:
    """Batches from before a compaction have offsets in the gaps of the log."""
    log = b"".join(batch_v2(b"payload", base_offset=row) for row in (0, 7, 20, 33))
    old = b"".join(batch_v2(b"payload", base_offset=row) for row in range(33))
    assert kept(log + b"\1" * 8 + old) == [0, 7, 20, 33]


def test_zeros_up_to_the_last_base_offset() -> None:
    rig = Rig().batches(11)
    log = bytearray(rig.log)
    last = rig.position_of(10)
    log[last - 20 : last + 8] = bytes(28)
    assert kept(bytes(log)) in (list(range(9)), list(range(10)))
    found = scan_with_resync(ks.Source(bytes(log)), 0, len(log), verify=True)
    assert found.batches["base_offset"].tolist() == list(range(9))


def test_a_length_that_ends_in_the_zero_tail() -> None:
    """The offsets within it have gaps, and batches fill it up to the zeros."""
    rig = Rig()
    for row in range(41):
        rig.batch(base_offset=3 * row)
    (length,) = struct.unpack_from(">i", rig.parts[35], 8)
    rig.set(35, "batch_length", length ^ 512)
    log = rig.log + bytes(4096)
    scan = ks.scan_batches(log, on_corrupt="resync")
    assert scan.batches["base_offset"].tolist() == [3 * row for row in without(41, 35)]
    assert [gap.position for gap in scan.gaps] == [rig.position_of(35)]
    assert ks.verify_crcs(log, scan.batches).all()


def test_one_wrong_offset_is_outweighed() -> None:
    """A flipped bit raises an offset before, or just before, bytes that are lost."""
    for row in (2, 5):
        rig = Rig().batches(30).set(row, "base_offset", row | 1 << 20)
        log = bytearray(rig.log)
        start = rig.position_of(6)
        log[start : start + 100] = b"\xff" * 100
        assert kept(bytes(log)) == without(30, row, 6, 7)


def test_a_damaged_batch_after_a_wrong_offset() -> None:
    """Its header looks intact, and its offset continues the wrong one's neighbours."""
    damaged = bytearray(batch_v2(b"a" * 20 + batch_v2(base_offset=2) + b"b" * 20, base_offset=3))
    damaged[-1] ^= 1
    log = b"\1" * 8 + batch_v2(base_offset=2**60) + damaged + dense(10, 4).log
    assert kept(log) == [2, *range(4, 14)]


def test_a_run_that_one_batch_contradicts_keeps_what_fits() -> None:
    """The prefix stays, with 45, which was moved there from the end of the run."""
    other = batch_v2(b"another value", base_offset=45)
    log = dense(30).log + dense(1, 45).log + b"\1" * 8 + dense(14, 31).log + other
    assert kept(log + dense(4, 46).log) == [*range(30), *range(45, 50)]


def test_an_offset_that_the_segment_cannot_have_outweighs_nothing() -> None:
    noise = b"\1" * 8
    far = dense(1, 2**50).log
    assert kept(dense(5).log + noise + far + noise + dense(1, 7).log) == [*range(5), 7]
    assert kept(dense(5).log + noise + far + far + noise + dense(1, 7).log) == [*range(5), 7]
    assert kept(dense(5).log + noise + far) == [*range(5), 2**50]


@pytest.mark.parametrize("offset", [3, 5, 50, 2**40])
def test_batches_in_a_damaged_one_are_found_whatever_its_offset(offset: int) -> None:
    rig = dense(10).set(5, "base_offset", offset)
    rig.set(5, "batch_length", 3 * rig.size_of(5) - 12)
    assert kept(rig.log) == without(10, 5)


def test_lower_offsets_after_a_gap_outweigh_it_only_if_they_were_written_later() -> None:
    """A broker appends in the order of time; batches of the same millisecond tell nothing."""

    def log(later_ms: int) -> bytes:
        rest = Rig()
        for row in range(3):
            rest.batch(base_offset=50 + row, max_timestamp=T0 + later_ms)
        return dense(5).log + dense(2, 100).log + b"\1" * 8 + rest.log

    assert kept(log(0)) == [*range(5), 100, 101]
    assert kept(log(1)) == [*range(5), 50, 51, 52]


def dense(count: int, first: int = 0) -> Rig:
    rig = Rig()
    for row in range(count):
        rig.batch(bytes([row]) * 20, base_offset=first + row)
    return rig


def doubtful(log: bytes, **options: int) -> list[int]:
    scan = ks.scan_batches(log, on_corrupt="resync", **options)
    assert sum(one.batches for one in scan.doubtful) == scan.is_doubtful.sum()
    assert all(one.is_doubtful for one in scan.doubtful)
    found: list[int] = scan["base_offset"][scan.is_doubtful].tolist()
    return found


def test_no_batch_of_an_intact_log_is_doubtful() -> None:
    scan = ks.scan_batches(dense(20).log, on_corrupt="resync")
    assert scan.doubtful == []
    assert not scan.is_doubtful.any()
    assert scan.is_doubtful.shape == (20,)
    assert not ks.scan_batches(dense(2).log).is_doubtful.any()
    assert ks.scan_batches(b"", on_corrupt="resync").is_doubtful.shape == (0,)


@pytest.mark.parametrize("noise", [b"\1" * 8, b"\1" + bytes(511)])
@pytest.mark.parametrize("first", [20, 30])
def test_batches_of_another_log_after_noise_are_doubtful(noise: bytes, first: int) -> None:
    log = dense(20).log + noise + dense(3, first).log
    assert doubtful(log) == [first, first + 1, first + 2]
    scan = ks.scan_batches(log, on_corrupt="resync")
    (one,) = scan.doubtful
    assert (one.position, one.size) == (len(log) - len(dense(3).log), len(dense(3).log))
    assert "doubtful 3 batches" in repr(scan)


def test_batches_after_a_damaged_one_with_an_intact_header_are_not_doubtful() -> None:
    rig = dense(20)
    rig.set(7, "records_count", 99)
    assert doubtful(rig.log) == []
    start = rig.position_of(5)
    assert doubtful(rig.log, start=start) == []


def test_copies_are_no_rivals_of_the_kept_batches() -> None:
    assert doubtful(dense(20).log + b"\1" * 8 + dense(5).log) == []


def test_batches_with_the_offsets_of_dropped_ones_are_doubtful() -> None:
    other = batch_v2(b"another value", base_offset=3)
    assert doubtful(dense(40).log + b"\1" * 8 + other) == [3]
    epoch = batch_v2(bytes([3]) * 20, base_offset=3, partition_leader_epoch=9)
    assert doubtful(dense(40).log + b"\1" * 8 + epoch) == [3]
