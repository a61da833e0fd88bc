from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from tests.support.segments import T0, Rig, message_v0, message_v1


def mixed() -> bytes:
    return message_v0() + message_v1(offset=1) + Rig().batch(base_offset=2, last_offset_delta=3).log


def test_each_row_gets_its_own_values() -> None:
    data = bytearray(Rig().batches(3).log)
    batches = ks.scan_batches(data).batches
    stamped = ks.rewrite.restamp_in_place(
        data, batches, last_offset=[10, 20, 30], partition_leader_epoch=np.array([1, 2, 3])
    )
    assert batches["base_offset"].tolist() == [0, 1, 2], "the caller's table stays"
    assert stamped["base_offset"].tolist() == [10, 20, 30]
    assert ks.scan_batches(data).batches.tolist() == stamped.tolist()
    assert ks.verify_crcs(data, stamped).all()


def test_only_selected_rows_change() -> None:
    data = Rig().batches(4).log
    batches = ks.scan_batches(data).batches
    changed = ks.restamp(data, batches[1::2], partition_leader_epoch=9)
    assert ks.scan_batches(changed).batches["partition_leader_epoch"].tolist() == [0, 9, 0, 9]
    assert data == Rig().batches(4).log


def test_a_base_offset_is_found_from_the_last_one() -> None:
    data = mixed()
    stamped = ks.scan_batches(ks.restamp(data, last_offset=[100, 101, 105])).batches
    assert stamped["base_offset"].tolist() == [100, 101, 102]
    assert stamped["crc"].tolist() == ks.scan_batches(data).batches["crc"].tolist()


def test_log_append_time_is_the_timestamp_of_records() -> None:
    data = ks.build_batches(timestamp=[T0, T0 + 5], value=[b"a", b"b"])
    appended = ks.restamp(
        data, max_timestamp=T0 + 99, timestamp_type=ks.TimestampType.LOG_APPEND_TIME
    )
    assert ks.read_records(appended, verify=True)["timestamp"].tolist() == [T0 + 99] * 2
    created = ks.restamp(
        appended, max_timestamp=T0 + 5, timestamp_type=ks.TimestampType.CREATE_TIME
    )
    assert created.tobytes() == data


def test_a_writable_map_is_changed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(Rig().batches(3).log)
    batches = ks.scan_batches(path).batches
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        ks.rewrite.restamp_in_place(view, batches, max_timestamp=T0 + 1)
    after = ks.scan_batches(path).batches
    assert after["max_timestamp"].tolist() == [T0 + 1] * 3
    assert ks.verify_crcs(path, after).all()


@pytest.mark.parametrize(
    ("rows", "values", "reason"),
    [
        (slice(0, 1), {"partition_leader_epoch": 1}, "no leader epoch"),
        (slice(0, 1), {"max_timestamp": 1}, "no timestamp"),
        (slice(2, 3), {"last_offset": 2}, "below last_offset_delta"),
        (slice(2, 3), {"timestamp_type": -1}, "must be 0 or 1"),
        (slice(2, 3), {"last_offset": 1.5}, "integers"),
        (slice(2, 3), {"partition_leader_epoch": 2**31}, "32 bits"),
        (slice(0, 3), {"last_offset": [1, 2]}, "shape"),
    ],
)
def test_invalid_values_are_refused_before_any_change(
    rows: slice, values: dict[str, object], reason: str
) -> None:
    data = bytearray(mixed())
    batches = ks.scan_batches(data).batches
    with pytest.raises(ValueError, match=reason):
        ks.rewrite.restamp_in_place(data, batches[rows], **values)  # type: ignore[arg-type]
    assert data == mixed()


def test_unknown_codecs_get_no_checksum() -> None:
    data = Rig().batch(attributes=5).log
    with pytest.raises(ks.UnsupportedCompressionError):
        ks.restamp(data, max_timestamp=1)
    ks.restamp(data, last_offset=5)


def test_rows_of_another_log_are_refused() -> None:
    data = bytearray(Rig().batches(2).log)
    batches = ks.scan_batches(data).batches.copy()
    for name, value in (("position", -1), ("position", 1 << 40), ("crc", 0), ("magic", 1)):
        wrong = batches.copy()
        wrong[name][1] = value
        with pytest.raises(ks.format.BatchTableError):
            ks.rewrite.restamp_in_place(
                data, wrong, partition_leader_epoch=1 if name != "magic" else None
            )


def test_read_only_memory_is_refused() -> None:
    data = Rig().batch().log
    with pytest.raises(TypeError, match="is read-only"):
        ks.rewrite.restamp_in_place(data, ks.scan_batches(data).batches, last_offset=1)
    assert ks.restamp(b"").size == 0
