"""A rewritten log contains the same records, except for the dropped ones."""

from __future__ import annotations

import random
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.rewrite import batch_stream
from kafkascan.rewrite.batch_stream import verified_groups
from tests.support.examples import examples
from tests.support.log_corpus import random_log

LOGS = st.builds(
    lambda seed, count: random_log(random.Random(seed), batches=count),
    st.integers(0, 2**32),
    st.integers(0, 9),
)
V2_LOGS = st.builds(
    lambda seed, count: random_log(random.Random(seed), magics=(2,), batches=count),
    st.integers(0, 2**32),
    st.integers(0, 9),
)
CODECS = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])


def content(data: bytes, *, with_headers: bool = True) -> list[tuple[object, ...]]:
    return [
        (record.offset, record.key, record.value, record.headers if with_headers else None)
        for record in ks.read_records(data, verify=True)
    ]


@examples(120)
@given(LOGS, st.integers(0, 2**32), st.floats(0, 1))
def test_filtering_drops_the_masked_records(data: bytes, seed: int, share: float) -> None:
    before = content(data)
    kept = np.random.default_rng(seed).random(len(before)) >= share
    filtered = ks.filter_records(data, keep=kept)
    assert content(filtered.data) == [
        one for one, is_kept in zip(before, kept, strict=True) if is_kept
    ]
    offsets = np.array([one[0] for one in before], np.int64)
    assert filtered.report.dropped_offsets.tolist() == offsets[~kept].tolist()
    if len(before):
        scan, old = ks.scan_batches(filtered.data), ks.scan_batches(data)
        assert ks.batches.next_offset(scan.batches)[-1] == ks.batches.next_offset(old.batches)[-1]
        assert set(scan["producer_id"].tolist()) | {-1} == set(old["producer_id"].tolist()) | {-1}


@examples(120)
@given(LOGS, st.sampled_from([None, 0, 1, 2]), CODECS, st.sampled_from([1, 200, 16384]))
def test_conversion_keeps_records(data: bytes, to_magic: int | None, codec: str, size: int) -> None:
    if codec == "zstd" and to_magic != 2:
        codec = "gzip"
    done = ks.convert_records(data, to_magic=to_magic, compression_type=codec, batch_size=size)
    keeps = to_magic in (None, 2)
    assert content(done.data, with_headers=keeps) == content(data, with_headers=keeps)
    scan = ks.scan_batches(done.data)
    if to_magic is not None:
        assert set(scan["magic"].tolist()) <= {to_magic}
    plain = ks.batches.is_control(scan.batches) | (scan["records_count"] == 0)
    wanted = ks.CompressionType[codec.upper()]
    assert set(scan["compression_type"][~plain].tolist()) <= {int(wanted)}
    assert (np.diff(scan["last_offset"]) > 0).all()


@examples(80)
@given(V2_LOGS, CODECS)
def test_recompression_and_back(data: bytes, codec: str) -> None:
    there = ks.convert_records(data, compression_type=codec).data
    plain = ks.convert_records(data, compression_type="none").data
    assert ks.convert_records(there, compression_type="none").data == plain


@examples(80)
@given(V2_LOGS, st.integers(0, 2**40), st.integers(0, 2**31 - 1))
def test_restamping_and_back(data: bytes, shift: int, epoch: int) -> None:
    batches = ks.scan_batches(data).batches
    if not len(batches):
        return
    there = ks.restamp(
        data, last_offset=ks.batches.last_offset(batches) + shift, partition_leader_epoch=epoch,
        max_timestamp=batches["max_timestamp"] + 1,
    )  # fmt: skip
    moved = ks.scan_batches(there).batches
    assert ks.verify_crcs(there, moved).all()
    assert (moved["base_offset"] - batches["base_offset"] == shift).all()
    back = ks.restamp(
        there, last_offset=ks.batches.last_offset(batches), max_timestamp=batches["max_timestamp"],
        partition_leader_epoch=batches["partition_leader_epoch"],
    )  # fmt: skip
    assert back.tobytes() == data


@examples(60)
@given(LOGS, st.integers(0, 2**32), st.sampled_from([1, 100, 1000]))
def test_groups_do_not_depend_on_tables(data: bytes, seed: int, size: int) -> None:
    batches = ks.scan_batches(data).batches
    dice = random.Random(seed)
    cuts = sorted(dice.choices(range(len(batches) + 1), k=3))
    tables = [batches[first:last] for first, last in pairwise([0, *cuts, len(batches)])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_stream, "_GROUP_SIZE", size)
        groups = [
            [rows["position"].tolist() for rows in verified_groups(ks.Source(data), given, 1)]
            for given in ([batches], tables)
        ]
    assert groups[0] == groups[1]
    assert [*chain(*groups[0])] == batches["position"].tolist()
