from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from tests.support.log_corpus import marker, random_log
from tests.support.segments import T0


def log(**fields: object) -> bytes:
    return ks.build_batches(
        offset=5, timestamp=[T0] * 6, key=[b"a", b"b"] * 3, value=[b"v"] * 6, max_records=3,
        **fields,
    )  # fmt: skip


def test_a_batch_keeps_its_first_and_last_offset() -> None:
    data = log(producer_id=7, producer_epoch=1, base_sequence=3)
    kept = np.array([False, True, False, True, True, True])
    filtered = ks.filter_records(data, keep=kept)
    before, after = ks.scan_batches(data), ks.scan_batches(filtered.data)
    for name in ("base_offset", "last_offset", "base_sequence", "last_sequence", "producer_id"):
        assert after[name].tolist() == before[name].tolist()
    assert after["records_count"].tolist() == [1, 3]
    assert ks.read_records(filtered.data, verify=True)["offset"].tolist() == [6, 8, 9, 10]
    report = filtered.report
    assert (report.copied, report.rewritten, report.dropped) == (1, 1, 0)
    assert report.dropped_offsets.tolist() == [5, 7]
    assert report.kept_size == len(filtered.data)


def test_unchanged_batches_are_copied() -> None:
    data = random_log(random.Random(2), magics=(2,))
    assert ks.filter_records(data, keep=ks.rewrite.without_offsets(10**12)).data == data


@pytest.mark.parametrize("producer_id", [0, 7])
def test_the_last_batches_of_log_and_producers_are_kept(producer_id: int) -> None:
    data = log(producer_id=producer_id, producer_epoch=1, base_sequence=0)
    data += ks.build_batches(offset=11, timestamp=[T0], value=[b"v"])
    filtered = ks.filter_records(data, keep=lambda records: np.zeros(len(records), np.bool_))
    after = ks.scan_batches(filtered.data)
    assert after["base_offset"].tolist() == [8, 11]
    assert after["records_count"].tolist() == [0, 0]
    assert filtered.report.emptied == 2
    everything = ks.filter_records(
        data, keep=ks.rewrite.without_offsets(0), retention=ks.rewrite.BatchRetention.DELETE_EMPTY
    )
    assert everything.data == b""
    nothing_read = ks.filter_records(
        b"" + data, keep=np.ones(0, np.bool_), retention=ks.rewrite.BatchRetention.DELETE
    )
    assert (nothing_read.data, nothing_read.report.records) == (b"", 0)


def test_control_records_are_not_passed_to_keep() -> None:
    data = log() + marker(11, "COMMIT", 7)
    asked = []

    def keep(records: ks.RecordTable) -> np.ndarray:
        asked.extend(records["offset"].tolist())
        return np.zeros(len(records), np.bool_)

    filtered = ks.filter_records(data, keep=keep)
    assert asked == [5, 6, 7, 8, 9, 10]
    assert len(ks.records.read_control_records(filtered.data)) == 1


def test_tombstones_get_the_requested_delete_horizon() -> None:
    data = ks.build_batches(timestamp=[T0, T0], key=[b"k", b"k"], value=[b"v", None])
    keep = ks.rewrite.without_offsets(0, 0)
    assert ks.scan_batches(ks.filter_records(data, keep=keep).data)["delete_horizon_ms"][0] == -1
    with_one = ks.filter_records(data, keep=keep, new_delete_horizon_ms=T0 + 9).data
    assert ks.scan_batches(with_one)["delete_horizon_ms"][0] == T0 + 9
    assert ks.read_records(with_one)["timestamp"].tolist() == [T0]


def test_keys_are_found() -> None:
    data = log()
    assert (
        ks.read_records(ks.filter_records(data, keep=ks.without_keys([b"a"])).data).items("key")
        == [b"b"] * 3
    )
    assert ks.filter_records(data, keep=ks.without_keys([b"", b"long"])).data == data
    odd = [b"", b"\0", b"a\0", b"\0a", b"a", None, b"\0\0", b"aa"]
    data = ks.build_batches(timestamp=[T0] * 8, key=odd, value=[b"v"] * 8)
    for key in odd:
        if key is not None:
            left = ks.filter_records(data, keep=ks.without_keys([key])).data
            assert ks.read_records(left).items("key") == [one for one in odd if one != key]


def test_keys_given_as_text_are_utf_8() -> None:
    keys = ["José", "Jose", None]
    data = ks.build_batches(key=keys)
    keep = ks.without_keys(["José", "nobody"])
    left = ks.read_records(ks.filter_records(data, keep=keep).data).items("key")
    assert left == [b"Jose", None]
    assert (keep.found, keep.missing) == ({"José".encode()}, [b"nobody"])
    for same in (
        bytearray("José".encode()),
        memoryview("José".encode()),
        np.bytes_(b"Jos\xc3\xa9"),
    ):
        assert ks.without_keys([same]) == ks.without_keys(["José"])


@pytest.mark.parametrize("keys", ["alice", b"alice", [7], [None], [b"a", 7]])
def test_keys_of_other_types_are_refused(keys: Any) -> None:
    with pytest.raises(TypeError, match="key"):
        ks.without_keys(keys)


def test_an_empty_range_of_offsets_is_refused() -> None:
    with pytest.raises(ValueError, match="is empty"):
        ks.rewrite.without_offsets(7, 6)


@pytest.mark.parametrize(
    "mask", [np.ones(5, np.bool_), np.ones(7, np.bool_), np.ones(6), np.ones((6, 1), np.bool_)]
)
def test_masks_must_fit(mask: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"mask|bool"):
        ks.filter_records(log(), keep=mask)
    if mask.dtype != np.bool_ or mask.ndim > 1:
        with pytest.raises(ValueError, match="bool"):
            ks.filter_records(log(), keep=lambda records: mask)


def test_damaged_batches_get_no_new_checksum() -> None:
    data = bytearray(log())
    data[70] ^= 1
    with pytest.raises(ks.ChecksumMismatchError):
        ks.filter_records(data, keep=ks.without_keys([b"a"]))
    with pytest.raises(ValueError, match="retention"):
        ks.filter_records(log(), keep=ks.without_keys([]), retention=7)


def test_the_repr_of_a_result_is_short() -> None:
    data = ks.build_batches(value=[b"v" * 1000] * 3000)
    filtered = ks.filter_records(data, keep=ks.rewrite.without_offsets(0, 2000))
    assert repr(filtered).startswith(
        f"<FilteredRecords: {len(filtered.data):,} bytes, FilterReport("
    )
    assert "records=3000, kept_records=999" in repr(filtered)
    converted = ks.convert_records(data, compression_type="zstd")
    assert repr(converted).startswith("<ConvertedRecords: ")
    assert max(len(repr(filtered)), len(repr(converted))) < 300


def test_groups_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_log(random.Random(17), batches=40)
    kept = np.random.default_rng(1).random(len(ks.read_records(data))) < 0.7
    filtered = ks.filter_records(data, keep=kept)
    recompressed = ks.convert_records(data, compression_type="gzip", batch_size=1)
    for size in (1, 300, 2000):
        monkeypatch.setattr("kafkascan.rewrite.batch_stream._GROUP_SIZE", size)
        again = ks.filter_records(data, keep=kept)
        assert again.data == filtered.data
        assert again.report.dropped_offsets.tolist() == filtered.report.dropped_offsets.tolist()
        done = ks.convert_records(data, compression_type="gzip", batch_size=1)
        assert (done.data, done.report) == (recompressed.data, recompressed.report)


def test_a_filter_by_offset_needs_an_end() -> None:
    """One without any would drop all records."""
    with pytest.raises(ValueError, match="the first or the last"):
        ks.rewrite.without_offsets()
    with pytest.raises(TypeError):
        ks.rewrite.without_offsets("1")  # type: ignore[arg-type]
