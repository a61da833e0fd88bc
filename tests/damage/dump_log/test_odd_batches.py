"""Dumps of odd batches."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.dump_log import line_output
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.format.errors import CorruptLogError
from tests.support.records import RecordV2, batch_of
from tests.support.segments import batch_v2

GZIP, DELETE_HORIZON, CONTROL = 0x01, 0x40, 0x20
OPTIONS = DumpOptions(is_deep=True, prints_data=True)


def dump_of(folder: Path, data: bytes) -> tuple[str, str, str]:
    """Return the lines, the warnings and the symbol of the error."""
    path = folder / "00000000000000000000.log"
    path.write_bytes(data)
    out, warnings, error = io.BytesIO(), [], ""
    try:
        dump_files([str(path)], OPTIONS, out.write, warnings.append)
    except CorruptLogError as raised:
        error = raised.symbol
    return out.getvalue().decode("utf-8"), "".join(warnings), error


def test_a_delete_horizon_of_minus_one_is_none(tmp_path: Path) -> None:
    batch = batch_of([RecordV2()], attributes=DELETE_HORIZON, base_timestamp=-1)
    lines, _, _ = dump_of(tmp_path, batch)
    assert " deleteHorizonMs: OptionalLong.empty " in lines


def test_texts_around_the_surrogates(tmp_path: Path) -> None:
    """U+D7FF and U+E000 have the first bytes of surrogates, or the next ones."""
    text = "한국어 \ud7ff\ue000"
    surrogate = b"\xed\xa0\x80"
    lines, _, _ = dump_of(tmp_path, batch_of([RecordV2(None, text.encode() + surrogate)]))
    assert f" payload: {text}\ufffd\n" in lines


MARKER_KEY, MARKER_VALUE = bytes(4), bytes(6)


@pytest.mark.parametrize("at", range(10))
def test_control_records_of_other_versions_and_types(tmp_path: Path, at: int) -> None:
    """Only the type, the second number of the key, decides whether it is a marker."""
    content = bytearray(MARKER_KEY + MARKER_VALUE)
    content[at] = 2
    record = RecordV2(bytes(content[:4]), bytes(content[4:]))
    lines, _, _ = dump_of(tmp_path, batch_of([record], attributes=CONTROL, producer_id=1))
    assert (" endTxnMarker: ABORT coordinatorEpoch: " in lines) == (at not in (2, 3))


def test_control_batches_with_two_records_or_a_damaged_one(tmp_path: Path) -> None:
    marker = RecordV2(MARKER_KEY, MARKER_VALUE)
    second = RecordV2(MARKER_KEY, MARKER_VALUE, offset_delta=1)
    lines, _, _ = dump_of(tmp_path, batch_of([marker, second], attributes=CONTROL, producer_id=1))
    assert lines.count("endTxnMarker") == 2
    payload = marker.encode()[:-2]
    _, _, error = dump_of(tmp_path, batch_v2(payload, attributes=CONTROL, producer_id=1))
    assert error != ""


@pytest.mark.parametrize(("count", "error"), [(1, "RECORDS_LEFT"), (0, "")])
def test_bytes_after_the_records_of_a_compressed_batch(
    tmp_path: Path, count: int, error: str
) -> None:
    deflate = zlib.compressobj(wbits=31)
    payload = deflate.compress(RecordV2().encode() + b"more") + deflate.flush()
    data = batch_v2(payload, attributes=GZIP, records_count=count)
    assert dump_of(tmp_path, data)[2] == error


def test_more_gaps_between_offsets_than_are_noted_at_once(tmp_path: Path) -> None:
    count = 5000
    columns = {"offset": np.arange(0, 2 * count, 2), "value": [b"v"] * count}
    data = ks.build_batches(columns, batch_size=1 << 20)
    lines, warnings, _ = dump_of(tmp_path, bytes(data))
    assert lines.count("\n| offset: ") == count
    assert warnings.count(" is followed by ") in (0, count - 1)


def test_many_batches_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause may be in front of a batch."""
    monkeypatch.setattr(line_output, "CHUNK_SIZE", 1 << 12)
    monkeypatch.setattr(line_output, "_WRITTEN_ALONE", 1 << 10)
    data = ks.build_batches(value=[b"v"] * 100, max_records=1)
    lines, _, _ = dump_of(tmp_path, bytes(data))
    assert lines.count("\nbaseOffset: ") == lines.count("\n| offset: ") == 100
