"""The loop for usual batches prints the same as the lines by columns, also of damaged batches."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import kafkascan as ks
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.dump_log.lines import line_output, usual_batches
from kafkascan.format.errors import CorruptLogError

_BYTES = st.binary(max_size=20) | st.text(max_size=30).map(str.encode) | st.just(b"x" * 5000)
_RECORD = st.tuples(
    st.none() | _BYTES,
    st.none() | _BYTES,
    st.lists(st.tuples(st.text(max_size=9), st.none() | _BYTES), max_size=3),
)
_BATCH = st.tuples(
    st.lists(_RECORD, min_size=1, max_size=9),
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.integers(0, 2**40),
    st.integers(0, 5),
    st.booleans(),
)
_OPTIONS = st.builds(
    lambda data, bare: DumpOptions(is_deep=True, prints_data=data, skips_metadata=bare),
    st.booleans(),
    st.booleans(),
)


def log_of(batches: list) -> bytes:
    data, offset = b"", 0
    for records, codec, time, gap, is_idempotent in batches:
        offset += gap
        keys, values, headers = zip(*records, strict=True)
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2**31 - 3}
        data += bytes(
            ks.build_batches(
                offset=offset, timestamp=time + np.arange(len(records)), key=list(keys),
                value=list(values), headers=list(headers), compression_type=codec,
                **(producer if is_idempotent else {}),
            )
        )  # fmt: skip
        offset += len(records)
    return data


def dumped(path: Path, options: DumpOptions) -> tuple[bytes, str, str | None]:
    out, err = io.BytesIO(), []
    try:
        dump_files([str(path)], options, out.write, err.append)
    except (CorruptLogError, ValueError) as error:
        return out.getvalue(), "", f"{type(error).__name__}: {error}"
    return out.getvalue(), "".join(err), None


def by_columns(path: Path, options: DumpOptions) -> tuple[bytes, str, str | None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "kafkascan.dump_log.log_dump.are_usual", lambda rows, _: np.zeros(len(rows), bool)
        )
        return dumped(path, options)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(_BATCH, max_size=5),
    options=_OPTIONS,
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=2),
    piece=st.sampled_from([1 << 12, 1 << 14]),
    at_once=st.sampled_from([1, 1 << 20]),
)
def test_same_as_by_columns(
    tmp_path: Path, batches: list, options: DumpOptions, changes: list, piece: int, at_once: int
) -> None:
    data = bytearray(log_of(batches))
    for at, byte in changes:
        if data:
            data[at % len(data)] = byte
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        for module in (line_output, usual_batches):
            patch.setattr(module, "PIECE_SIZE", piece)
        patch.setattr(line_output, "_WRITTEN_ALONE", piece // 4)
        patch.setattr(usual_batches, "_COMPRESSED_AT_ONCE", at_once)
        found = dumped(path, options)
    expected = by_columns(path, options)
    assert found[1:] == expected[1:]
    if found[2] is None:
        assert found[0] == expected[0]
    else:
        # The loop prints the records in front of a damaged one, as the tool does.
        assert found[0].startswith(expected[0])
