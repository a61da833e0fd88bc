"""Totals of batch tables."""

from __future__ import annotations

import kafkascan as ks
from tests.support.logs import COMMIT, TRANSACTIONAL, marker
from tests.support.records import RecordV2, batch_of
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


def _log_of_times(**options: object) -> bytes:
    """Batches of two records: 100 to 300, 250 to 200, and one without timestamps."""
    times = [[100, 300], [250, 200], [-1, -1]]
    return b"".join(
        ks.build_batches(timestamp=two, value=[b"", b""], offset=2 * at, **options)  # type: ignore[arg-type]
        for at, two in enumerate(times)
    )


def test_the_first_timestamp_is_not_the_earliest_maximum() -> None:
    scan = ks.scan_batches(_log_of_times())
    assert ks.batches.first_timestamp(scan.batches).tolist() == [100, 250, -1]
    summary = ks.batches.summarize(scan.batches)
    assert (summary.first_timestamp, summary.max_timestamp) == (100, 300)
    assert "1970-01-01T00:00:00.100 to 1970-01-01T00:00:00.300" in repr(scan)


def test_headers_that_do_not_contain_the_first_timestamp() -> None:
    appended = ks.scan_batches(_log_of_times(timestamp_type=1, log_append_time=900))
    assert ks.batches.summarize(appended.batches).first_timestamp == 900
    horizon = ks.scan_batches(_log_of_times(delete_horizon_ms=50))
    assert ks.batches.first_timestamp(horizon.batches).tolist() == [300, 250, -1]
    for codec, expected in (("none", 100), ("gzip", 250)):
        legacy = ks.scan_batches(_log_of_times(magic=1, compression_type=codec))
        assert ks.batches.summarize(legacy.batches).first_timestamp == expected


def test_producers_have_the_same_first_timestamp() -> None:
    ids = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for options, expected in (({}, 100), ({"timestamp_type": 1, "log_append_time": 900}, 900)):
        data = ks.build_batches(timestamp=[100, 300], value=[b"", b""], **ids, **options)
        assert ks.read_producers(data).to_columns()["first_timestamp"] == [expected]


def test_no_times() -> None:
    summary = ks.batches.summarize(ks.scan_batches(ks.build_batches(value=[b""])).batches)
    assert (summary.first_timestamp, summary.max_timestamp) == (None, None)


def test_control_and_transactional_batches() -> None:
    begun = batch_of([RecordV2()], producer_id=1, producer_epoch=0, attributes=TRANSACTIONAL)
    log = begun + marker(COMMIT, base_offset=1) + batch_of([RecordV2()], base_offset=2)
    summary = ks.batches.summarize(ks.scan_batches(log).batches)
    assert (summary.batches, summary.transactional_batches, summary.control_batches) == (3, 2, 1)


def test_no_batches() -> None:
    assert ks.batches.summarize(ks.scan_batches(b"").batches) == ks.batches.BatchSummary()
