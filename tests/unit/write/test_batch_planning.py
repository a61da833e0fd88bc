"""build_batches: types of columns, limits of batches, refused input."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kafkascan as ks

T0 = 1_714_000_000_000
VALUES = [b"one", None, b"", b"a longer one", b"five" * 10]


def _values(data: bytes) -> list[bytes | None]:
    return ks.read_records(data).items("value")


@pytest.mark.parametrize(
    "column",
    [
        VALUES,
        tuple(VALUES),
        np.array(VALUES, object),
        pa.array(VALUES, pa.binary()),
        pa.array(VALUES, pa.large_binary()),
        pa.array(VALUES, pa.string()),
        pa.array(VALUES, pa.binary_view()),
        pa.array(VALUES, pa.string_view()),
        pa.array(VALUES, pa.binary()).dictionary_encode(),
        pa.chunked_array([pa.array(VALUES[:2]), pa.array([], pa.binary()), pa.array(VALUES[2:])]),
        pa.array([b"before", *VALUES, b"after"])[1:-1],
        pa.array([b"before", *VALUES], pa.binary_view())[1:],
    ],
    ids=lambda column: str(getattr(column, "type", type(column).__name__)),
)
def test_types_of_items(column: Any) -> None:
    assert _values(ks.build_batches(value=column)) == VALUES


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["é", bytearray(b"b"), memoryview(b"abcd")[::2]], ["é".encode(), b"b", b"ac"]),
        (np.array([b"ab", b"c"], "S4"), [b"ab", b"c"]),
        (np.array([b"ab", b"c"], "V2"), [b"ab", b"c\0"]),
        (np.array(["ab", "ü"]), [b"ab", "ü".encode()]),
        (np.arange(6, dtype=np.uint8).reshape(2, 3), [b"\0\1\2", b"\3\4\5"]),
        (np.arange(12, dtype=np.uint8).reshape(2, 6)[:, ::2], [b"\0\2\4", b"\6\x08\x0a"]),
        (pa.array([b"abc", None], pa.binary(3)), [b"abc", None]),
        (pa.nulls(2), [None, None]),
    ],
)
def test_items_of_fixed_size_and_text(column: Any, expected: list[bytes | None]) -> None:
    assert _values(ks.build_batches(value=column)) == expected


@pytest.mark.parametrize(
    "column",
    [
        [T0, -1, T0 + 5],
        np.array([T0, -1, T0 + 5])[::-1][::-1],
        np.array([T0, "NaT", T0 + 5], "datetime64[ms]"),
        np.array([T0 * 1000 + 999, "NaT", (T0 + 5) * 1000], "datetime64[us]"),
        pa.array([T0, None, T0 + 5], pa.timestamp("ms", "UTC")),
        pa.array([T0 * 10**6 + 7, None, (T0 + 5) * 10**6], pa.timestamp("ns")),
        pa.array([T0, None, T0 + 5]),
    ],
)
def test_types_of_timestamps(column: Any) -> None:
    data = ks.build_batches(timestamp=column)
    assert ks.read_records(data)["timestamp"].tolist() == [T0, -1, T0 + 5]


def test_one_timestamp_for_all_records() -> None:
    moment = np.datetime64(datetime.datetime(2024, 4, 24, 23, 6, 40), "ms")
    for time in (T0, moment):
        data = ks.build_batches(value=[b"", b""], timestamp=time)
        assert ks.read_records(data)["timestamp"].tolist() == [T0, T0]


_HEADERS = [[("a", b"1"), ("b", None)], None, {"c": b""}, []]
_READ_HEADERS = [[(b"a", b"1"), (b"b", None)], [], [(b"c", b"")], []]
_HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    "column",
    [
        _HEADERS,
        pa.array([[("a", b"1"), ("b", None)], None, [("c", b"")], []], pa.list_(_HEADER_TYPE)),
        pa.array([[("a", b"1"), ("b", None)], None, [("c", b"")], []], pa.large_list(_HEADER_TYPE)),
        pa.array(
            [[("a", b"1"), ("b", None)], None, [("c", b"")], []], pa.map_(pa.string(), pa.binary())
        ),
    ],
)
def test_types_of_headers(column: Any) -> None:
    for sliced in (column, column[1:]):
        table = ks.read_records(ks.build_batches(headers=sliced))
        assert [record.headers for record in table] == _READ_HEADERS[-len(sliced) :]


def test_offsets_are_consecutive_or_given() -> None:
    for offset, expected in ((7, [7, 8]), ([3, 9], [3, 9]), (pa.array([3, 9]), [3, 9])):
        data = ks.build_batches(value=[b"a", b"b"], offset=offset)
        assert ks.read_records(data)["offset"].tolist() == expected


def test_tables_are_accepted(tmp_path: Path) -> None:
    columns = {"offset": [5, 7, 8], "timestamp": [T0, T0 + 1, -1], "key": [b"k", None, b""],
               "value": VALUES[:3], "headers": [[], [("h", b"x")], []]}  # fmt: skip
    expected = ks.build_batches(columns)
    (tmp_path / "log").write_bytes(expected)
    table = ks.read_records(tmp_path / "log")
    assert ks.build_batches(table) == expected
    assert ks.build_batches(table.to_arrow()) == expected
    assert ks.build_batches(table.to_polars()) == expected
    assert ks.build_batches(table[1:]) != expected
    compressed = ks.build_batches(table, compression_type="zstd")
    assert ks.build_batches(ks.read_records(compressed)) == expected


def test_batches_end_at_a_limit() -> None:
    columns = {"value": [bytes(100)] * 10}
    alone = len(ks.build_batches({"value": [bytes(100)]}))
    for batch_size, counts in (
        (1, [1] * 10),
        (alone, [1] * 10),
        (alone + 108 + 1, [2] * 5),
        (16384, [10]),
    ):
        data = ks.build_batches(columns, batch_size=batch_size)
        rows = ks.scan_batches(data).batches
        assert rows["records_count"].tolist() == counts, batch_size
        assert ks.verify_crcs(data, rows).all()
    rows = ks.scan_batches(ks.build_batches(columns, max_records=4)).batches
    assert rows["records_count"].tolist() == [4, 4, 2]


def test_batches_end_where_offsets_are_too_far_apart() -> None:
    data = ks.build_batches(offset=[0, 2**31 - 1, 2**31, 2**33])
    rows = ks.scan_batches(data).batches
    assert rows["base_offset"].tolist() == [0, 2**31, 2**33]
    assert rows["last_offset_delta"].tolist() == [2**31 - 1, 0, 0]


def test_sequences_continue_over_batches_and_wrap() -> None:
    data = ks.build_batches(
        value=[b""] * 6, max_records=2, producer_id=1, producer_epoch=0, base_sequence=2**31 - 3
    )
    assert ks.scan_batches(data).batches["base_sequence"].tolist() == [2**31 - 3, 2**31 - 1, 1]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_are_yielded_one_by_one(magic: int, codec: str) -> None:
    columns = {"value": VALUES * 100, "timestamp": T0}
    options: dict[str, Any] = {"magic": magic, "compression_type": codec, "max_records": 7}
    batches = [bytes(batch) for batch in ks.iter_built_batches(columns, **options)]
    data = ks.build_batches(columns, **options)
    assert b"".join(batches) == data
    assert [len(batch) for batch in batches] == ks.batches.size_in_bytes(
        ks.scan_batches(data).batches
    ).tolist()


def test_no_records_give_no_batches() -> None:
    for codec in ("none", "zstd"):
        assert ks.build_batches(value=[], compression_type=codec) == b""
        assert list(ks.iter_built_batches(value=[], compression_type=codec)) == []


@pytest.mark.parametrize("name", ["offset", "timestamp", "key", "headers"])
def test_empty_columns_of_any_type(name: str) -> None:
    empty = [[], (), np.array([], object), pa.nulls(0), pa.chunked_array([pa.nulls(0)])]
    if name in ("offset", "timestamp"):
        empty += [np.array([]), pa.array([], pa.float64())]
    for column in empty:
        assert ks.build_batches(value=[], **{name: column}) == b""
        with pytest.raises(ValueError, match="columns differ in length"):
            ks.build_batches(value=[b"a"], **{name: column})
    if name in ("offset", "timestamp"):
        with pytest.raises(TypeError, match=f"{name} must be integers, not .* of shape"):
            ks.build_batches(value=[], **{name: [[]]})


@pytest.mark.parametrize(
    ("columns", "symbol", "record"),
    [
        ({"offset": [1, 2, 2]}, "OFFSET_NOT_ABOVE", 2),
        ({"offset": [-1, 2]}, "OFFSET_OUT_OF_RANGE", 0),
        ({"offset": [1, 2**63 - 1]}, "OFFSET_OUT_OF_RANGE", 1),
        ({"timestamp": [1, -5]}, "NEGATIVE_TIMESTAMP", 1),
        ({"headers": [[], [(None, b"")]]}, "NULL_HEADER_KEY", 1),
    ],
)
def test_invalid_records_are_refused(columns: Any, symbol: str, record: int) -> None:
    with pytest.raises(ks.format.RecordInputError, match=symbol) as caught:
        ks.build_batches(columns)
    assert caught.value.record == record
    with pytest.raises(ValueError, match=symbol):
        ks.iter_built_batches(columns)


def test_headers_are_refused_below_magic_2() -> None:
    with pytest.raises(ks.format.RecordInputError, match="HEADERS_NOT_SUPPORTED"):
        ks.build_batches(headers=[[("h", b"")]], magic=1)
    assert ks.build_batches(headers=[[], None], magic=1)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({}, ValueError),
        ({"value": [b"a"], "key": [b"a", b"b"]}, ValueError),
        ({"value": [7]}, TypeError),
        ({"value": b"abc"}, TypeError),
        ({"value": pa.array([1, 2])}, TypeError),
        ({"value": np.zeros(3)}, TypeError),
        ({"value": np.zeros((2, 2, 2), np.uint8)}, TypeError),
        ({"offset": [1.5]}, TypeError),
        ({"offset": pa.array([1, None])}, ValueError),
        ({"offset": np.array([2**63], np.uint64)}, ValueError),
        ({"offset": [2**64]}, ValueError),
        ({"timestamp": [2**64]}, ValueError),
        ({"timestamp": ["now"]}, ValueError),
        ({"timestamp": pa.array(["now"])}, ValueError),
        ({"timestamp": [b"2024-04-24"]}, TypeError),
        ({"timestamp": pa.array([1.5])}, TypeError),
        ({"headers": pa.array([[1]])}, TypeError),
        ({"colour": [1]}, ValueError),
    ],
)
def test_invalid_columns_are_refused(columns: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ks.build_batches(columns)


def test_a_table_and_columns_are_refused_together() -> None:
    with pytest.raises(ValueError, match="not both"):
        ks.build_batches({"value": [b""]}, value=[b""])
    with pytest.raises(ValueError, match="max_records"):
        ks.build_batches(value=[b""], max_records=0)
    with pytest.raises(ValueError, match="batch_size"):
        ks.build_batches(value=[b""], batch_size=-1)


@pytest.mark.parametrize("build", [ks.build_batches, ks.iter_built_batches])
def test_unknown_names_are_refused_with_a_suggestion(build: Any) -> None:
    for records in (pa.table({"valeu": [b"v"]}), {"valeu": [b"v"]}):
        with pytest.raises(ks.format.UnknownColumnError, match="did you mean 'value'"):
            build(records)
    with pytest.raises(ks.format.UnknownOptionError, match="did you mean 'compression_type'"):
        build(value=[b""], compresion_type="zstd")
    with pytest.raises(ks.format.UnknownOptionError, match="did you mean 'value'"):
        build(valeu=[b""])


def test_columns_of_readers_are_ignored() -> None:
    data = ks.build_batches(value=VALUES, producer_id=7, producer_epoch=0, base_sequence=0)
    names = [*ks.records.RECORD_COLUMN_NAMES, *ks.batches.COLUMN_NAMES]
    table = ks.read_records(data, columns=names).to_arrow()
    for name in ("topic", "partition", "segment", "timestampType"):
        table = table.append_column(name, pa.array([0] * len(VALUES)))
    assert ks.build_batches(table) == ks.build_batches(ks.read_records(data))


def test_the_index_of_pandas_is_ignored() -> None:
    frame = ks.read_records(ks.build_batches(value=VALUES)).to_pandas()
    selected = frame[frame["value"].notna()]
    assert _values(ks.build_batches(selected)) == [value for value in VALUES if value is not None]
    by_offset = frame.set_index("offset").iloc[2:]
    assert ks.read_records(ks.build_batches(by_offset))["offset"].tolist() == [2, 3, 4]


@pytest.mark.parametrize("has_offsets", [False, True])
def test_offsets_can_be_given_with_a_table(*, has_offsets: bool) -> None:
    columns: dict[str, Any] = {"value": VALUES[:2]} | ({"offset": [7, 9]} if has_offsets else {})
    read = ["offset", "value"] if has_offsets else ["value"]
    record_table = ks.read_records(ks.build_batches(columns), columns=read)
    for table in (columns, pa.table(columns), record_table):
        for offset, expected in ((5000, [5000, 5001]), ([3, 8], [3, 8])):
            data = ks.build_batches(table, offset=offset)
            assert ks.read_records(data)["offset"].tolist() == expected
            assert _values(data) == VALUES[:2]
        with pytest.raises(ValueError, match="differ in length"):
            ks.build_batches(table, offset=[1, 2, 3])


@pytest.mark.parametrize(
    ("kind", "sound", "damaged"),
    [
        (pa.binary(), np.array([0, 3, 5], np.int32), [0, 5, 3]),
        (pa.binary(), np.array([0, 3, 5], np.int32), [0, 3, 99]),
        (pa.binary(), np.array([0, 3, 5], np.int32), [-4, 3, 5]),
        (pa.large_binary(), np.array([0, 5], np.int64), [0, 2**40]),
        (pa.binary_view(), np.array([13, 0, 0, 0], np.int32), [13, 0, 0, 3]),
        (pa.binary_view(), np.array([13, 0, 0, 0], np.int32), [13, 0, 5, 0]),
        (pa.binary_view(), np.array([13, 0, 0, 0], np.int32), [-7, 0, 0, 0]),
    ],
)
def test_damaged_columns_of_arrow_are_refused(
    kind: pa.DataType, sound: Any, damaged: list[int]
) -> None:
    count = 1 if kind == pa.binary_view() else len(sound) - 1
    data = bytes(5 if kind != pa.binary_view() else 13)
    numbers = sound.copy()
    column = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers), pa.py_buffer(data)])
    numbers[:] = damaged  # after Arrow has validated them
    with pytest.raises(ValueError, match="cannot be read"):
        ks.build_batches(value=column)


def test_a_table_whose_file_shrinks_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(ks.build_batches(value=[bytes(10_000)] * 100))
    for options in ({}, {"compression_type": "lz4"}):
        table = ks.read_records(path)
        with path.open("r+b") as file:
            data = file.read()
            file.truncate(5000)
        with pytest.raises(ks.format.SourceReadError):
            ks.build_batches(table, **options)
        path.write_bytes(data)


def test_a_table_without_offsets_is_refused() -> None:
    data = ks.build_batches(value=[b"a"])
    with pytest.raises(ValueError, match="offset"):
        ks.build_batches(ks.read_records(data, columns=["value"]))
    only = ks.read_records(data, columns=["offset", "value"])
    assert ks.read_records(ks.build_batches(only))["timestamp"].tolist() == [-1]


def test_sizes_that_change_during_the_write_are_safe() -> None:
    data = ks.build_batches(value=[bytes(1000)] * 100, compression_type="zstd")
    records = ks.read_records(data)
    batches = ks.iter_built_batches(records, batch_size=1 << 20)
    sizes = records.columns["value_size"]
    sizes[-1] += 7000  # beyond the end of the decompressed bytes
    sizes[:10] -= 700
    assert _values(b"".join(batches)) == [bytes(1000)] * 100


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("producer_id", 64), ("producer_epoch", 16), ("base_sequence", 32),
        ("partition_leader_epoch", 32), ("log_append_time", 64), ("delete_horizon_ms", 64),
    ],
)  # fmt: skip
def test_fields_have_the_bits_of_the_format(name: str, bits: int) -> None:
    fields = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    ks.build_batches(value=[b"v"], **{**fields, name: 2 ** (bits - 1) - 1})
    with pytest.raises(ValueError, match=f"{name} .*{bits} bits"):
        ks.build_batches(value=[b"v"], **{**fields, name: 2 ** (bits - 1)})


def test_offsets_do_not_wrap() -> None:
    highest = 2**63 - 2  # the log end offset is one higher
    one = ks.build_batches(offset=highest, value=[b"v"])
    assert ks.read_records(one)["offset"].tolist() == [highest]
    for build in (ks.build_batches, ks.iter_built_batches):
        with pytest.raises(ks.format.RecordInputError) as refused:
            build(offset=highest, value=[b"v"] * 5)
        assert refused.value.record == 1
        assert refused.value.symbol == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("is_noise", [False, True])
def test_output_grows_when_compression_expands(codec: str, *, is_noise: bool) -> None:
    """The first batches do not predict the compression ratio of the others."""
    noise = np.random.default_rng(1).bytes(3 << 20)
    parts = [noise, bytes(3 << 20)] if is_noise else [bytes(3 << 20), noise]
    values = [part[at : at + size] for part in parts for size in (3001,) for at in
              range(0, len(part), size)] + [parts[0] * 2, b"", None]  # fmt: skip
    data = ks.build_batches(value=values, compression_type=codec)
    assert b"".join(ks.iter_built_batches(value=values, compression_type=codec)) == data
    batches = ks.scan_batches(data).batches
    assert len(batches) > 300
    assert ks.verify_crcs(data, batches).all()
    assert _values(data) == values


def test_yielded_batches_stay_valid() -> None:
    values = [bytes([at % 251]) * 1000 for at in range(20_000)]
    for codec in ("none", "lz4"):
        kept = list(ks.iter_built_batches(value=values, compression_type=codec))
        assert b"".join(kept) == ks.build_batches(value=values, compression_type=codec)


def test_lengths_of_every_size() -> None:
    """The size of a record's length field is computed after the record, unless room is short."""
    sizes = [*range(70), *range(8170, 8200), *range(1_048_560, 1_048_580), 0]
    values = [bytes([at % 256]) * size for at, size in enumerate(sizes)]
    for codec in ("none", "zstd"):
        together = ks.build_batches(value=values, compression_type=codec, batch_size=1 << 30)
        alone = ks.build_batches(value=values, compression_type=codec, max_records=1)
        assert _values(together) == _values(alone) == values
