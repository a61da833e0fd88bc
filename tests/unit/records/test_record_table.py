# ruff: noqa: E501 - bytes as hex
"""Records: examples written by Kafka, old formats, columns, and conversions of the table."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

import kafkascan as ks
from kafkascan._core.items import GatheredItems, RecordRows, sequences_into
from kafkascan._core.record_headers import HeaderWalk
from kafkascan.records.item_columns import HeadersOfRecords
from kafkascan.records.record_table import Record
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0, batch_v2, message_v0, message_v1
from tests.support.warm_process import run_warm

# Batches that Kafka's writer writes and its readers read, as hex.
HELLO = "0000000000000000%sffffffff02%s0000018f125c74000000018f125c7400ffffffffffffffffffffffffffff00000002%s"
EXAMPLES = {
    "plain": ("00000049", "dbda21c9000000000001", "16000000010a68656c6c6f0016000002010a776f726c6400"),
    "gzip": ("0000005d", "74d92c86000100000001", "1f8b08000000000000ff1363606060e4ca48cdc9c9671063606062e42acf2fca496100006985f36918000000"),
    "snappy": ("0000005f", "664bc7cc000200000001", "82534e415050590000000001000000010000001a185c16000000010a68656c6c6f0016000002010a776f726c6400"),
    "raw snappy": ("0000004b", "9c79932c000200000001", "185c16000000010a68656c6c6f0016000002010a776f726c6400"),
    "lz4": ("00000058", "3906bdb1000300000001", "04224d186040821800008016000000010a68656c6c6f0016000002010a776f726c640000000000"),
    "lz4 compressed": ("0000005a", "14eff247000300000001", "04224d186040821a000000f00916000000010a68656c6c6f0016000002010a776f726c640000000000"),
    "zstd": ("00000055", "11b0e814000400000001", "28b52ffd0058c0000016000000010a68656c6c6f0016000002010a776f726c6400010000"),
}  # fmt: skip
FULL = (
    "000000000000006400000054000000070248a310c80010000000030000018f125c74000000018f125c7446"
    "000000000000000900027ffffffe0000000326000000026b02760604683102780468320100000c00090200"
    "01000e008c0106010000"
)
HORIZON = (
    "00000000000000000000003affffffff023ff051890040000000000000018f125c77e80000018f125c7400"
    "ffffffffffffffffffffffffffff000000011000cf0f00026b0100"
)
APPEND_TIME = (
    "000000000000000000000049ffffffff02e17c1fbe0008000000010000018f125c74000000018f125c77e7"
    "ffffffffffffffffffffffffffff0000000216000000010a68656c6c6f0016000002010a776f726c6400"
)
V0_GZIP = (
    "000000000000000b000000424f4aef7f0001ffffffff000000341f8b08000000000000ff636000032e2016"
    "083baf100fe631268208438814033748ce3388d91b229704228c008bea495c38000000"
)
V1_GZIP = (
    "000000000000000b00000052e9f4971e01010000018f125c7405ffffffff0000003c1f8b08000000000000"
    "ff636080038903f91a3d8c400663bf504c0948843111441842e5415212eb962ebf0557c30a62248108230"
    "0a0c0a09a48000000"
)
V1_GZIP_APPEND_TIME = (
    "000000000000000b00000052e1736cbc01090000018f125c744dffffffff0000003c1f8b08000000000000"
    "ff63608003892b42890f1939181818fb85624a7c81228c8920c2102acf085273badfe92baa9a24106104008"
    "fb5df6d48000000"
)
V0_LZ4 = (
    "000000000000000b00000057e0442e170003ffffffff0000004904224d1860401a3a000000f02900000000"
    "0000000a0000001056cf205f000000000001610000000131000000000000000b000000104952034b000000"
    "00000162000000013200000000"
)
V1_LZ4 = (
    "000000000000000b0000006f9f7274cd01030000018f125c7405ffffffff0000005904224d186040824a00"
    "0000f039000000000000000000000018c06f288c01000000018f125c740000000001610000000131000000"
    "000000000100000018aea5a7da01000000018f125c74050000000162000000013200000000"
)


def rows(data: bytes, **options: Any) -> list[tuple[object, ...]]:
    table = ks.read_records(data, verify=True, **options)
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in table]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_records_in_every_codec(name: str) -> None:
    data = bytes.fromhex(HELLO % EXAMPLES[name])
    assert rows(data) == [(0, T0, None, b"hello", []), (1, T0, None, b"world", [])]


def test_all_fields_of_a_record() -> None:
    data = bytes.fromhex(FULL)
    headers = [(b"h1", b"x"), (b"h2", None), (b"", b"")]
    assert rows(data) == [
        (100, T0, b"k", b"v", headers),
        (101, T0 - 5, b"", None, []),
        (103, T0 + 70, None, b"", []),
    ]
    assert [record.sequence for record in ks.read_records(data)] == [2**31 - 2, 2**31 - 1, 1]


def test_the_json_document_of_records_with_headers() -> None:
    headers = ((b"one", b"\x01\xff"), (b"none", None), (b"\xff", b""))
    table = ks.read_records(
        batch_of([RecordV2(b"k", b"\xfe", headers=headers), RecordV2(b"k", None)])
    )
    first, second = json.loads(table.to_json())["rows"]
    assert (first["key"], first["value"]) == ("6b", "fe")
    assert first["headers"] == [
        {"key": "one", "value": "01ff"},
        {"key": "none", "value": None},
        {"key": r"\xff", "value": ""},
    ]
    assert (second["value"], second["headers"]) == (None, [])


def test_timestamps() -> None:
    assert rows(bytes.fromhex(HORIZON)) == [(0, T0, b"k", None, [])]
    append_time = ks.read_records(bytes.fromhex(APPEND_TIME))
    assert append_time["timestamp"].tolist() == [T0 + 999] * 2
    assert append_time[0].timestamp_type is ks.TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(
    ("data", "times"),
    [
        (V0_GZIP, (-1, -1)),
        (V0_LZ4, (-1, -1)),
        (V1_GZIP, (T0, T0 + 5)),
        (V1_LZ4, (T0, T0 + 5)),
        (V1_GZIP_APPEND_TIME, (T0 + 77, T0 + 77)),
    ],
)
def test_wrappers(data: str, times: tuple[int, int]) -> None:
    expected = [(10, times[0], b"a", b"1", []), (11, times[1], b"b", b"2", [])]
    assert rows(bytes.fromhex(data)) == expected
    assert ks.read_records(bytes.fromhex(data), columns=["offset"])["offset"].tolist() == [10, 11]


def test_only_magic_0_accepts_the_wrong_lz4_header_checksum() -> None:
    """KAFKA-3160."""
    assert len(ks.read_records(bytes.fromhex(V0_LZ4.replace("1860401a", "18604082")))) == 2
    broken = bytes.fromhex(V1_LZ4.replace("18604082", "1860401a"))
    with pytest.raises(ks.InvalidRecordError, match="checksum of the frame header is wrong"):
        ks.read_records(broken)


def test_plain_messages() -> None:
    log = message_v0(b"k", b"v", offset=3) + message_v1(None, None, offset=4, timestamp=T0)
    log += message_v1(b"", b"", offset=5, timestamp=-1)
    assert rows(log) == [
        (3, -1, b"k", b"v", []),
        (4, T0, None, None, []),
        (5, -1, b"", b"", []),
    ]
    times = ks.read_records(log).to_arrow()["timestamp"]
    assert times.is_null().to_pylist() == [True, False, True]


def wrapper(inner: bytes, *, offset: int, magic: int = 1, value: bytes | None = None) -> bytes:
    make = message_v1 if magic == 1 else message_v0
    return make(None, gzip.compress(inner) if value is None else value, offset=offset, attributes=1)


def test_offsets_in_wrappers() -> None:
    inner = b"".join(message_v1(None, b"v", offset=i) for i in (0, 1, 4))
    assert [row[0] for row in rows(wrapper(inner, offset=104))] == [100, 101, 104]
    assert [row[0] for row in rows(wrapper(inner, offset=0))] == [0, 1, 4]
    with pytest.raises(ks.InvalidRecordError, match="BAD_WRAPPER_OFFSET"):
        ks.read_records(wrapper(inner, offset=3))
    # A truncated last message is ignored; the magic of inner messages may differ.
    assert [row[0] for row in rows(wrapper(inner[:-1], offset=104))] == [103, 104]
    mixed = message_v0(None, b"v", offset=0) + message_v1(None, b"v", offset=1)
    assert [row[1] for row in rows(wrapper(mixed, offset=8))] == [-1, T0]


@pytest.mark.parametrize(
    ("inner", "symbol"),
    [
        (b"", "NO_INNER_MESSAGES"),
        (b"short", "NO_INNER_MESSAGES"),
        (struct.pack(">qi", 0, 13) + bytes(13), "INNER_TOO_SMALL"),
        (message_v1(None, b"v", attributes=1), "INNER_COMPRESSED"),
    ],
)
def test_invalid_wrappers_are_refused(inner: bytes, symbol: str) -> None:
    with pytest.raises(ks.InvalidRecordError, match=symbol):
        ks.read_records(wrapper(inner, offset=0))


def test_any_other_magic_inside_of_a_wrapper_is_read_as_1() -> None:
    inner = bytearray(message_v1(b"k", b"v"))
    inner[16] = 0x7F
    assert rows(wrapper(bytes(inner), offset=0)) == [(0, T0, b"k", b"v", [])]


def test_null_wrappers_and_unknown_codecs() -> None:
    with pytest.raises(ks.InvalidRecordError, match="NULL_WRAPPER"):
        ks.read_records(message_v1(None, None, attributes=1))
    for attributes in (4, 5):
        with pytest.raises(ks.UnsupportedCompressionError, match="UNSUPPORTED_COMPRESSION"):
            ks.read_records(message_v1(None, b"x", attributes=attributes))
    with pytest.raises(ks.UnsupportedCompressionError, match="codec 6"):
        ks.read_records(batch_v2(b"x", attributes=6))


# ---- options -----------------------------------------------------------------------------

LOG = b"".join(
    batch_of(
        [RecordV2(b"k%d" % i, b"v" * (i % 40), [(b"h", b"%d" % i)], i) for i in range(10)],
        base_offset=10 * number,
    )
    for number in range(20)
)
MARKER = batch_of([RecordV2(b"\0\0\0\1", bytes(6))], base_offset=200, attributes=0x30)


def test_control_batches() -> None:
    log = LOG + MARKER
    assert len(ks.read_records(log)) == 200
    assert len(ks.read_records(log, control="include")) == 201
    assert [r.offset for r in ks.read_records(log, control="only")] == [200]
    assert sum(map(len, ks.iter_records(log, control="only"))) == 1
    with pytest.raises(ValueError, match="control must be"):
        ks.read_records(log, control="all")  # type: ignore[arg-type]


def test_rows_select() -> None:
    batches = ks.scan_batches(LOG).batches
    table = ks.read_records(LOG, batches[[7, 3]])
    assert table["offset"].tolist() == [*range(70, 80), *range(30, 40)]
    assert table["batch"].tolist() == [0] * 10 + [1] * 10
    assert table.batches["base_offset"].tolist() == [70, 30]
    assert len(ks.read_records(LOG, batches[:0])) == 0


@pytest.mark.parametrize(
    "change",
    [("position", 5), ("position", -1), ("position", 2**62), ("records_count", 9),
     ("batch_length", 60), ("attributes", 4), ("base_offset", 5), ("magic", 1)],
)  # fmt: skip
@pytest.mark.parametrize("memory_map", [True, False])
def test_rows_of_another_source_are_refused(
    tmp_path: Path, change: tuple[str, int], memory_map: bool
) -> None:
    (tmp_path / "log").write_bytes(LOG)
    batches = ks.scan_batches(LOG).batches.copy()
    batches[change[0]][3] = change[1]
    source = ks.Source(tmp_path / "log", memory_map=memory_map)
    with pytest.raises(ks.format.BatchTableError, match=r"batches\[3\]"):
        ks.read_records(source, batches)


def test_names_of_columns() -> None:
    with pytest.raises(ValueError, match="did you mean 'timestamp'"):
        ks.read_records(LOG, columns=["timestmap"])
    with pytest.raises(TypeError, match="a sequence of names"):
        ks.read_records(LOG, columns="offset")
    table = ks.read_records(LOG, columns=["value", "base_offset", "compression_type", "batch"])
    assert list(table.columns) == ["batch", "value_position", "value_size"]
    assert table.to_arrow().column_names == ["value", "base_offset", "compression_type", "batch"]
    assert table.to_arrow()["compression_type"][0].as_py() == "none"
    assert table["base_offset"][15] == 10
    assert table[3].key is None
    with pytest.raises(KeyError):
        table["key"]
    for name in ("key", "nope", "offset"):
        with pytest.raises(KeyError, match=f"'{name}' is not a requested column"):
            table.items(name)


def test_a_wrong_checksum() -> None:
    damaged = bytearray(LOG)
    damaged[-1] ^= 1
    with pytest.raises(ks.ChecksumMismatchError, match="CHECKSUM_MISMATCH") as caught:
        ks.read_records(bytes(damaged), verify=True)
    assert caught.value.base_offset == 190
    seen = sum(map(len, _until_error(ks.iter_records(bytes(damaged), verify=True))))
    assert seen == 190


def _until_error(tables: Any) -> Any:
    try:
        yield from tables
    except ks.ChecksumMismatchError:
        return


# ---- conversions -------------------------------------------------------------------------


def test_arrow_pandas_polars_and_duckdb_read_the_table() -> None:
    table = records = ks.read_records(LOG)
    expected = [b"k%d" % (i % 10) for i in range(200)]
    assert table.to_arrow()["key"].to_pylist() == expected
    assert table.to_arrow(views=True)["key"].to_pylist() == expected
    assert table.to_pandas()["key"].tolist() == expected
    assert table.to_polars()["key"].to_list() == expected
    assert polars.DataFrame(table)["offset"].sum() == sum(range(200))
    assert table.to_numpy()["key"].tolist() == expected
    assert pa.table(table).schema.field("headers").type == pa.list_(
        pa.struct([("key", pa.string()), ("value", pa.binary())])
    )
    assert len(records) == 200
    found = duckdb.sql("select count(*), max(headers[1].value) from records")
    assert found.fetchall() == [(200, b"9")]


def test_views_copy_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(batch_of([RecordV2(b"key", b"x" * 100)]))
    source = ks.Source(tmp_path / "log")
    values = ks.read_records(source).to_arrow(views=True)["value"].chunk(0)
    address = source.as_array().__array_interface__["data"][0]
    assert values.buffers()[2].address == address
    with pytest.raises(ks.SourceInUseError):
        source.close()
    del values
    source.close()


HEADERS: list[list[tuple[bytes, bytes | None]]] = [
    [(b"a", b"1"), (b"", None)], [], [(b"bc", b""), (b"a", b"23"), (b"d", None)], [(b"", b"4")]
]  # fmt: skip


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_walks_over_headers_may_pause_anywhere(most: int) -> None:
    table = ks.read_records(batch_of([RecordV2(headers=one) for one in HEADERS]))
    columns, buffers = table.columns, table.buffers
    walks = [
        HeaderWalk(
            buffers.addresses, buffers.sizes, buffers.of_batch,
            columns["batch"], columns["headers_position"], columns["headers_count"],
        )
        for _ in range(2)
    ]  # fmt: skip
    pairs = [pair for one in HEADERS for pair in one]
    while not walks[0].is_finished:
        assert walks[0].measure(most) == (0, 0)
    assert (walks[0].done, walks[0].nulls) == (len(pairs), 2)
    keys, values = np.empty(walks[0].key_bytes, np.uint8), np.empty(walks[0].value_bytes, np.uint8)
    starts = np.zeros((2, len(pairs) + 1), np.int32)
    is_null = np.empty(len(pairs), np.uint8)
    key_starts, value_starts = (one.view(np.uint8).reshape(-1, 4) for one in starts)
    while not walks[1].is_finished:
        assert walks[1].copy(most, key_starts, keys, value_starts, values, is_null) == (0, 0)
    assert keys.tobytes() == b"".join(key for key, _ in pairs)
    assert values.tobytes() == b"".join(value or b"" for _, value in pairs)
    assert np.diff(starts[0]).tolist() == [len(key) for key, _ in pairs]
    assert np.diff(starts[1]).tolist() == [len(value or b"") for _, value in pairs]
    assert is_null.tolist() == [value is None for _, value in pairs]


@pytest.mark.parametrize(
    "change",
    [("headers_count", -1), ("headers_count", 2**31 - 1), ("headers_count", 3),
     ("headers_position", -1), ("headers_position", 2**40), ("batch", 1), ("batch", -1)],
)  # fmt: skip
def test_headers_of_edited_columns_are_refused(change: tuple[str, int]) -> None:
    table = ks.read_records(batch_of([RecordV2(headers=HEADERS[0])]))
    table.columns[change[0]][0] = change[1]
    with pytest.raises(ks.format.BatchTableError):
        table.to_arrow(["headers"])
    with pytest.raises((ks.format.BatchTableError, MemoryError, ValueError)):
        table.header_addresses()


def test_headers_that_change_between_two_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The map of a file that another process writes to: never more than was measured."""
    log = bytearray(batch_of([RecordV2(headers=[(b"a", b"1"), (b"a", b"1")])]))
    table = ks.read_records(log)
    at = log.index(b"\x02a\x021")
    measure = HeadersOfRecords._run

    def run(self: HeadersOfRecords, walk: HeaderWalk, step: Callable[[int], Any]) -> None:
        measure(self, walk, step)
        log[at:] = b"\x08" + log[at + 1 :]

    monkeypatch.setattr(HeadersOfRecords, "_run", run)
    with pytest.raises(ks.format.BatchTableError):
        table.to_arrow(["headers"])


def test_header_keys_that_are_not_utf_8() -> None:
    headers: list[tuple[bytes, bytes | None]] = [
        (b"\xff\xfe", b"1"),
        ("gr\u00fc\u00df".encode(), None),
    ]
    table = ks.read_records(batch_of([RecordV2(headers=headers)]))
    assert table[0].headers == headers
    assert table.to_arrow()["headers"][0].as_py() == [
        {"key": "\ufffd\ufffd", "value": b"1"},
        {"key": "gr\u00fc\u00df", "value": None},
    ]


def test_indices_slices_and_repr() -> None:
    table = ks.read_records(LOG)
    assert table[-1].offset == 199
    assert table[5:8]["offset"].tolist() == [5, 6, 7]
    assert table[::50].to_arrow()["offset"].to_pylist() == [0, 50, 100, 150]
    with pytest.raises(IndexError):
        table[200]
    assert "200 records of 20 batches" in repr(table)
    assert np.datetime64(T0, "ms") == table.timestamps[0]
    assert "0 records" in repr(ks.read_records(b""))
    assert ks.read_records(b"").to_arrow().num_rows == 0


def test_a_path_stays_open_while_the_table_exists(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(LOG)
    table = ks.read_records(tmp_path / "0.log")
    assert table[199].key == b"k9"


def test_a_file_that_is_truncated_during_a_read(tmp_path: Path) -> None:
    """In a child process, because the test is that the process survives."""
    path = tmp_path / "0.log"
    path.write_bytes(LOG * 500)
    script = f"""
import os, kafkascan as ks
source = ks.Source({str(path)!r})
batches = ks.scan_batches(source).batches
table = ks.read_records(source, batches)
os.truncate({str(path)!r}, 8192)
for read in (lambda: ks.read_records(source, batches), table.to_arrow,
             lambda: table.to_arrow(views=True), lambda: table[len(table) - 1]):
    try:
        read()
    except ks.format.SourceReadError:
        print("SourceReadError")
"""
    result = run_warm(script)
    assert result.stdout.split() == ["SourceReadError"] * 4, result.stderr


def test_a_column_by_its_name() -> None:
    table = ks.read_records(batch_of([RecordV2(b"k", None, [(b"h", b"1")]), RecordV2(None)]))
    assert table["key"].tolist() == [b"k", None]
    assert table["value"].tolist() == [None, b"value"]
    assert table["headers"].tolist() == [[(b"h", b"1")], []]
    assert table["sequence"].tolist() == [-1, -1]
    with pytest.raises(KeyError, match="'value' was not requested: this table has key, offset"):
        ks.read_records(batch_of([RecordV2()]), columns=["key", "offset"])["value"]
    with pytest.raises(ks.format.UnknownColumnError, match="did you mean 'value'"):
        table["vlaue"]


@pytest.mark.parametrize(
    ("tail", "symbol", "severity"),
    [(batch_of([RecordV2()])[:-1], "TORN_TAIL", "warning"), (bytes(100), "ZERO_TAIL", "note")],
    ids=["torn", "zeros"],
)
def test_what_follows_the_last_batch_is_a_problem(
    tail: bytes, symbol: str, severity: str, tmp_path: Path
) -> None:
    path, log = tmp_path / "log", batch_of([RecordV2(b"k")])
    path.write_bytes(log + tail)
    *_, last = ks.iter_records(path)
    for table in (ks.read_records(path), ks.read_records(path, on_corrupt="stop"), last):
        (problem,) = table.problems
        assert (problem.symbol, str(problem.severity)) == (symbol, severity)
        assert (problem.path, problem.position) == (str(path), len(log))
        assert table.is_complete
    assert not ks.read_records(path, ks.scan_batches(path).batches).problems
    assert not ks.read_records(log).problems


@pytest.mark.parametrize("as_file", [False, True])
def test_a_wrong_length_that_looks_like_a_torn_tail(as_file: bool, tmp_path: Path) -> None:
    data = bytearray(LOG)
    at = ks.scan_batches(LOG)["position"][4]
    data[at + 8] ^= 0x40  # a gigabyte
    path = tmp_path / "log"
    path.write_bytes(data)
    source: Any = path if as_file else bytes(data)
    *_, last = ks.iter_records(source)
    for table in (ks.read_records(source, verify=True), last):
        (problem,) = table.problems
        assert (problem.symbol, problem.severity) == ("TORN_TAIL", ks.Severity.ERROR)
        assert problem.position == at
        following = ks.scan_batches(LOG)["position"][5]
        assert f"; 15 intact batches follow at position {following}: see" in problem.message
        assert problem.rows_missing
        assert not table.is_complete
        with pytest.warns(ks.tables.IncompleteTableWarning):
            table.to_arrow()


def test_copies_in_a_torn_batch_are_not_lost_batches() -> None:
    cut = batch_of([RecordV2(value=LOG)], base_offset=200)[:-1]
    (problem,) = ks.read_records(LOG + cut).problems
    assert (problem.severity, problem.rows_missing) == (ks.Severity.WARNING, False)


def test_offsets_that_go_back() -> None:
    data = bytearray(LOG)
    at = ks.scan_batches(LOG)["position"][4:6]
    data[at[0] + 2] ^= 1
    *_, last = ks.iter_records(bytes(data))
    for table in (ks.read_records(data), ks.read_records(data, verify=True), last):
        (problem,) = table.problems
        assert (problem.symbol, problem.severity) == ("OFFSET_OVERLAP", ks.Severity.ERROR)
        assert problem.position == at[1]
        assert problem.message == "offset 50 follows an equal or higher offset"


def test_masks_that_do_not_fit() -> None:
    log = batch_of([RecordV2(), RecordV2(offset_delta=1)])
    scan, table = ks.scan_batches(log), ks.read_records(log)
    with pytest.raises(IndexError, match=r"1 values does not fit 2 records.*scan.batches\[mask\]"):
        table[np.ones(1, bool)]
    with pytest.raises(TypeError, match=r"array of bool; for a mask, pass scan.batches\[mask\]"):
        ks.read_records(log, np.ones(1, bool))
    with pytest.raises(TypeError, match=r"got BatchScan; pass its \.batches"):
        ks.verify_crcs(log, scan)


def test_a_table_is_not_one_array() -> None:
    with pytest.raises(TypeError, match=r"use to_numpy\(\)"):
        np.asarray(ks.read_records(LOG))


def test_on_damage_is_for_batches_whose_end_is_known() -> None:
    data, errors = bytearray(LOG), list[ks.format.CorruptBatchError]()
    at = int(ks.scan_batches(LOG)["position"][4])
    data[at + 16] = 9  # the magic byte
    read = ks.iter_records(bytes(data), on_damage=errors.append)
    assert len(next(read)) == 40
    with pytest.raises(ks.format.UnsupportedMagicError):
        next(read)
    tables = ks.iter_records(bytes(data), on_damage=errors.append, on_corrupt="stop")
    assert [(len(one), len(one.problems)) for one in tables] == [(40, 0), (0, 1)]
    assert not errors


def test_a_record_is_like_a_tuple_of_its_fields() -> None:
    table = ks.read_records(
        batch_of(
            [RecordV2(b"k", None, [(b"h", None)]), RecordV2(None, b"v", offset_delta=1)],
            base_offset=7,
        )
    )
    first, second = table
    create_time = ks.TimestampType.CREATE_TIME
    assert first == (7, T0, create_time, b"k", None, [(b"h", None)], -1, 0)
    assert tuple(second) == (8, T0, create_time, None, b"v", [], -1, 0)
    assert first == table[0] != second
    assert first != [*first]
    assert [*first][:2] == [first[0], first[1]] == [first.offset, first.timestamp]
    assert dict(zip(first._fields, first, strict=True)) == first._asdict()
    assert pickle.loads(pickle.dumps(first)) == first == Record(*first) == Record(**first._asdict())
    assert repr(second).startswith(f"Record(offset=8, timestamp={T0}, timestamp_type=")
    assert tuple(pandas.DataFrame([first, second]).columns) == first._fields
    second.headers.append((b"a", b"b"))
    assert second.headers == [(b"a", b"b")]
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)
    (only,) = ks.read_records(batch_of([RecordV2(b"k")]), columns=["key"])
    assert only == (None, None, create_time, b"k", None, [], None, 0)


def test_rows_of_columns_that_differ_are_refused() -> None:
    batches, batch = np.zeros(1, ks.BATCH_DTYPE), np.zeros(2, np.int32)
    number = np.zeros(2, np.int64)
    starts, types = np.array([0, 1, 2]), tuple(ks.TimestampType)

    def rows(**changed: Any) -> RecordRows:
        columns = {
            "batches": batches, "batch": batch, "types": types, "offset": number,
            "timestamp": number, "key": GatheredItems(b"ab", starts, None),
            "value": None, "headers": None,
        }  # fmt: skip
        return RecordRows(**(columns | changed))

    assert [one.key for one in rows()] == [b"a", b"b"]
    for changed in (
        {"timestamp": number[:1]},
        {"key": GatheredItems(b"ab", starts[:2], None)},
        {"headers": []},
        {"types": types[:1]},
    ):
        with pytest.raises(ValueError, match=r"differ in length|three timestamp types"):
            rows(**changed)
    for changed in (
        {"batch": batch + 1},
        {"batch": batch - 1},
        {"key": GatheredItems(b"a", starts, None)},
        {"key": GatheredItems(b"ab", starts[::-1].copy(), None)},
    ):
        with pytest.raises(ValueError, match="out of"):
            list(rows(**changed))
    for rows_of, offsets in ((batch + 1, number), (batch - 1, number), (batch, number[:1])):
        with pytest.raises(ValueError, match=r"out of|differ in length"):
            sequences_into(batches, rows_of, offsets, np.empty(2, np.int32))
    with pytest.raises(ValueError, match="differ in length"):
        GatheredItems(b"ab", starts, np.zeros(1, np.uint8))
    assert list(RecordRows.__new__(RecordRows, batches, batch[:0], types, *[None] * 5)) == []
