"""Records whose sizes are not those that were planned, and sizes that no batch can have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core.encoding import compress_batches, write_batches
from kafkascan._core.packing import Output, PiecePacker
from kafkascan._core.record_columns import Records, measure, plan
from kafkascan.format.errors import STATUS

GZIP = 1  # any codec
Items = tuple[np.ndarray, np.ndarray]


def items(sizes: Sequence[int]) -> Items:
    """Return items of given sizes, which all begin at the same address."""
    return np.full(len(sizes), BYTES.ctypes.data, np.uintp), np.array(sizes, np.int32)


BYTES = np.zeros(1000, np.uint8)


def records(
    values: Sequence[int] = (5, 5, 5),
    *,
    header_starts: Sequence[int] | None = None,
    header_keys: Sequence[int] = (),
    offset: int = 0,
) -> Records:
    count, headers = len(values), items(header_keys)
    starts = None if header_starts is None else np.array(header_starts, np.int64)
    columns = offset + np.arange(count), np.zeros(count, np.int64), None, items(values)
    return Records(*columns, starts, headers, headers, None)


def batch(count: int, **fields: int) -> np.ndarray:
    rows = np.zeros(1, ks.BATCH_DTYPE)
    for name, value in {"magic": 2, "records_count": count, **fields}.items():
        rows[name] = value
    return rows


def measured(given: Records, rows: np.ndarray, count: int) -> tuple[str, int, int]:
    sizes = np.zeros(1, np.int64)
    status, record = measure(given, rows, np.array([0, count]), sizes)
    return symbol(status), record, int(sizes[0])


def symbol(status: int) -> str:
    return next(name for name, number in STATUS.items() if number == status)


# ---- larger than planned -----------------------------------------------------------------------


@pytest.mark.parametrize("header_starts", [None, [0, 0, 1, 2]])
@pytest.mark.parametrize("missing", [1, 10, 20])
def test_batches_are_not_written_beyond_their_planned_size(
    header_starts: list[int] | None, missing: int
) -> None:
    given = records(header_starts=header_starts, header_keys=[3, 3] if header_starts else ())
    rows = batch(3)
    _, _, size = measured(given, rows, 3)
    for planned, expected in ((size, "OK"), (size - missing, "OUTPUT_FULL")):
        out = Output(100)
        arguments = given, rows, np.array([0, 3]), np.array([planned]), 0, 1, 0, out
        status, _ = write_batches(*arguments)
        assert symbol(status) == expected
        assert out.size == (61 + size if expected == "OK" else 0)


def test_a_message_is_not_written_beyond_its_planned_size() -> None:
    rows = batch(1, magic=1)
    given = records([5])
    _, _, size = measured(given, rows, 1)
    status, _ = write_batches(
        given, rows, np.array([0, 1]), np.array([size - 1]), 0, 1, 0, Output(100)
    )
    assert symbol(status) == "OUTPUT_FULL"


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("missing", [1, 20, 50])
def test_batches_are_not_compressed_beyond_their_planned_size(magic: int, missing: int) -> None:
    rows = batch(3, magic=magic, attributes=GZIP)
    given = records()
    _, _, size = measured(given, rows, 3)
    for planned, expected in ((size, "OK"), (max(1, size - missing), "OUTPUT_FULL")):
        arguments = given, rows.copy(), np.array([0, 3]), np.array([planned]), 0, 1, 0
        status, _ = compress_batches(*arguments, Output(100), PiecePacker(lambda data: [data]))
        assert symbol(status) == expected


# ---- sizes that no batch can have; the bytes of the items are not read --------------------------

LARGEST = 2**31 - 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_record_that_no_batch_can_contain_ends_a_plan(magic: int) -> None:
    given = records([5, LARGEST - 10, 5])
    starts, sizes = np.zeros(4, np.int64), np.zeros(3, np.int64)
    status, record, _ = plan(given, magic, False, 1 << 14, 1 << 14, None, starts, sizes)
    assert (symbol(status), record) == ("RECORD_TOO_LARGE", 1)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_batch_above_two_gibibytes_is_too_large(magic: int) -> None:
    given = records([2**30, 2**30, 5])
    rows = batch(3, magic=magic, attributes=GZIP)
    assert measured(given, rows, 3)[:2] == ("RECORD_TOO_LARGE", 1)


@pytest.mark.parametrize("base_offset", [2**31 + 1, -(2**31)])
def test_offsets_far_from_the_base_offset_are_refused(base_offset: int) -> None:
    rows = batch(1, base_offset=base_offset)
    assert measured(records([5]), rows, 1)[:2] == ("OFFSET_DELTA_TOO_LARGE", 0)


def test_a_null_as_the_key_of_a_header_is_refused() -> None:
    given = records(header_starts=[0, 0, 1, 2], header_keys=[3, -1])
    assert measured(given, batch(3), 3)[:2] == ("NULL_HEADER_KEY", 2)


def test_the_first_record_with_headers_is_refused_below_magic_2() -> None:
    with pytest.raises(ks.format.RecordInputError, match="HEADERS_NOT_SUPPORTED") as caught:
        ks.build_batches(value=[b"a", b"b"], headers=[[], [("h", b"")]], magic=1)
    assert caught.value.record == 1


def test_records_without_values() -> None:
    keys = [bytes([number]) * number for number in range(20)]
    built = ks.read_records(ks.build_batches(key=keys))
    assert built.items("key") == keys
    assert built.items("value") == [None] * 20
