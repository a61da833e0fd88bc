"""Totals of batch tables."""

from __future__ import annotations

import kafkascan as ks
from tests.support.segments import Rig, message_v1


def test_batches_and_bytes_by_codec() -> None:
    scan = Rig().batches(3).batch(attributes=4).batch(attributes=6).add(message_v1()).scan()
    summary = ks.batches.BatchSummary()
    summary.add(scan.batches[:2])
    summary.add(scan.batches[2:])
    assert summary == ks.batches.summarize(scan.batches)
    sizes = scan["size_in_bytes"].tolist()
    assert summary.codecs == {"none": 4, "zstd": 1, "unknown(6)": 1}
    assert summary.codec_sizes == {
        "none": sum(sizes[:3]) + sizes[5],
        "zstd": sizes[3],
        "unknown(6)": sizes[4],
    }
    assert summary.codec_sizes.total() == scan.valid_bytes
    assert summary.magics == {2: 5, 1: 1}


def test_no_batches() -> None:
    assert ks.batches.summarize(ks.scan_batches(b"").batches) == ks.batches.BatchSummary()
