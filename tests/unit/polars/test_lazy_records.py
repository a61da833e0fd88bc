"""What a lazy scan reads, and what it leaves unread."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kafkascan as ks
from kafkascan.batches.columns import COLUMN_NAMES, BatchTable
from kafkascan.io.sources import Source
from kafkascan.logs.walking import log_reading
from kafkascan.polars import scan_records
from kafkascan.records import decoding
from kafkascan.records.read_options import ReadOptions
from kafkascan.records.record_table import RECORD_COLUMN_NAMES, RecordTable
from tests.support.overlaps import SHAPES, write_segments
from tests.support.paths import GOLDEN

DATA = GOLDEN / "kafka-4.4.0" / "data"
COLUMN = pl.col


@dataclass
class Work:
    """What was read: batches, records and columns that were decoded, and files that were walked."""

    batches: int = 0
    records: int = 0
    most_records: int = 0
    stored: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    done = Work()
    decode_first, header_tables = decoding.decode_first, log_reading._header_tables

    def decode(source: Source, batches: BatchTable, options: ReadOptions) -> RecordTable:
        table = decode_first(source, batches, options)
        done.batches += len(table.batches)
        done.records += len(table)
        done.most_records = max(done.most_records, len(table))
        done.stored |= {*options.stored}
        return table

    def walk(
        source: Source, options: ReadOptions, reading: log_reading.Reading
    ) -> Iterator[BatchTable]:
        done.files.add("/".join(Path(source.path).parts[-2:]))
        return header_tables(source, options, reading)

    monkeypatch.setattr(decoding, "decode_first", decode)
    monkeypatch.setattr(log_reading, "_header_tables", walk)
    return done


@pytest.fixture(scope="module")
def written_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 segments of 100 batches of 10 records, one record each millisecond."""
    folder = tmp_path_factory.mktemp("segments")
    for first in range(0, 20_000, 1_000):
        batches = []
        for base in range(first, first + 1_000, 10):
            offsets = np.arange(base, base + 10)
            batches.append(
                ks.build_batches(
                    offset=offsets,
                    timestamp=1_000_000 + offsets,
                    key=[b"key"] * 10,
                    value=[b"value %d" % offset for offset in offsets.tolist()],
                    compression_type="lz4",
                )
            )
        (folder / f"{first:020}.log").write_bytes(b"".join(batches))
    return folder


@pytest.fixture
def log(written_log: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written_log, tmp_path / "orders-3"))


def write_indexes(log: Path, interval_bytes: int = 1024) -> None:
    for segment in log.glob("*.log"):
        entries = ks.broker_state.build_offset_index(
            ks.scan_batches(segment).batches,
            base_offset=int(segment.stem),
            interval_bytes=interval_bytes,
        )
        assert len(entries) > 2 or not segment.stat().st_size
        ks.broker_state.write_index(segment.with_suffix(".index"), entries)


def test_the_columns_of_a_query_are_decoded_and_no_others(work: Work) -> None:
    frame = scan_records(DATA / "codecs-java-0")
    found = frame.select("offset", "topic").collect()
    assert found.columns == ["offset", "topic"]
    assert work.stored == {"batch", "offset"}
    frame.filter(COLUMN.value.is_not_null()).select("timestamp").collect()
    assert work.stored == {"batch", "offset", "timestamp", "value_position", "value_size"}


def test_records_are_counted_without_keys_and_values(work: Work) -> None:
    assert scan_records(DATA / "codecs-java-0").select(pl.len()).collect().item() == 1520
    assert not work.stored & {"key_position", "value_position", "headers_position"}


def test_partitions_that_a_filter_rules_out_are_not_opened(work: Work) -> None:
    frame = scan_records(DATA)
    found = frame.filter(topic="partitions").filter(COLUMN.partition > 0).collect()
    assert found["partition"].unique().to_list() == [2], "no record was sent to partition 1"
    assert {name.split("/")[0] for name in work.files} == {"partitions-1", "partitions-2"}
    assert frame.filter(COLUMN.topic.is_in(["none", "nobody"])).collect().is_empty()
    assert {name.split("/")[0] for name in work.files} == {"partitions-1", "partitions-2"}


@pytest.mark.parametrize(
    ("predicate", "records", "batches", "segments"),
    [
        (COLUMN.offset == 12_345, 1, 1, 13),
        (COLUMN.offset.is_between(995, 1_004), 10, 2, 2),
        (COLUMN.offset >= 19_990, 10, 1, 20),
        (COLUMN.offset.is_in([3, 777]), 2, 2, 1),
        ((COLUMN.offset < 5) | (COLUMN.offset == 1_500), 6, 2, 2),
        (COLUMN.timestamp >= pl.lit(1_019_985).cast(pl.Datetime("ms", "UTC")), 15, 2, 20),
        (COLUMN.timestamp > datetime(2000, 1, 1, tzinfo=UTC), 0, 0, 20),
        (COLUMN.base_offset == 50, 10, 1, 20),
        ((COLUMN.offset == 7) & (COLUMN.value == b"value 7"), 1, 1, 1),
        (COLUMN.offset.is_null(), 0, 2_000, 20),
    ],
)
def test_batches_and_segments_that_a_filter_rules_out_are_not_decoded(
    log: Path, work: Work, predicate: pl.Expr, records: int, batches: int, segments: int
) -> None:
    names = ["offset", "timestamp", "value", "base_offset"]
    found = scan_records(log, columns=names).filter(predicate).collect()
    assert len(found) == records
    assert_frame_equal(found, ks.read_records(log, columns=names).to_polars().filter(predicate))
    assert work.batches == batches
    assert len(work.files) == segments


@pytest.mark.parametrize(
    ("predicate", "segments"),
    [
        (COLUMN.offset == 12_345, ["12000"]),
        (COLUMN.offset >= 17_999, ["17000", "18000", "19000"]),
        (COLUMN.offset >= 18_000, ["18000", "19000"]),
        (COLUMN.offset.is_between(4_995, 5_005), ["4000", "5000"]),
        (COLUMN.offset.is_in([3, 777, 19_999]), ["0", "19000"]),
        (~COLUMN.offset.is_between(1_000, 18_999), ["0", "19000"]),
        (COLUMN.offset > 20_000, ["19000"]),
    ],
)
def test_segments_that_end_before_are_not_walked(
    log: Path, work: Work, predicate: pl.Expr, segments: list[str]
) -> None:
    expected = ks.read_records(log, columns=["offset"]).to_polars().filter(predicate)
    write_indexes(log)
    work.files.clear()
    frame = scan_records(log, columns=["offset"]).filter(predicate)
    assert_frame_equal(frame.collect(), expected)
    assert work.files == {f"orders-3/{int(base):020}.log" for base in segments}


@pytest.mark.parametrize("damage", ["empty", "cut", "beyond", "between", "odd", "zeros", "log"])
def test_a_segment_is_walked_if_its_index_does_not_show_its_end(
    log: Path, work: Work, damage: str
) -> None:
    write_indexes(log)
    path = log / f"{3_000:020}.index"
    entries = bytearray(path.read_bytes())
    match damage:
        case "empty":
            entries.clear()
        case "cut" | "log":
            segment = path.with_suffix(".log")
            segment.write_bytes(segment.read_bytes()[:-1] + (b"" if damage == "cut" else b"\0\0"))
        case "beyond":
            entries[-4:] = (1 << 30).to_bytes(4, "big")
        case "between":
            entries[-4:] = (int.from_bytes(entries[-4:], "big") + 1).to_bytes(4, "big")
        case "odd":
            entries.append(1)
        case "zeros":
            entries[:] = bytes(len(entries))
    path.write_bytes(entries)
    assert len(scan_records(log).filter(COLUMN.offset < 2_000).collect()) == 2_000
    work.files.clear()
    late = scan_records(log, columns=["offset"], on_corrupt="stop")
    with contextlib.ExitStack() as warned:
        if damage in ("cut", "log"):
            warned.enter_context(pytest.warns(ks.tables.IncompleteTableWarning))
        assert len(late.filter(COLUMN.offset >= 19_000).collect()) == 1_000
    assert f"orders-3/{3_000:020}.log" in work.files


def test_a_query_of_duckdb_decodes_what_it_must_and_no_more(log: Path, work: Work) -> None:
    write_indexes(log)
    records = scan_records(log)
    assert records.collect_schema()["value"] == pl.Binary
    work.stored.clear()
    query = 'SELECT "offset", "value" FROM records WHERE "offset" BETWEEN 12345 AND 12346'
    found = duckdb.sql(query).fetchall()
    assert found == [(offset, b"value %d" % offset) for offset in (12_345, 12_346)]
    assert (work.batches, work.records) == (1, 10)
    assert work.stored == {"batch", "offset", "value_position", "value_size"}
    assert work.files == {f"orders-3/{12_000:020}.log"}
    assert duckdb.sql("SELECT count(*) FROM records").fetchall() == [(20_000,)]


def test_a_head_reads_no_more_than_it_returns(log: Path, work: Work) -> None:
    assert scan_records(log).head(15).collect()["offset"].to_list() == list(range(15))
    assert work.records == 20  # batches are not split
    assert work.files == {"orders-3/00000000000000000000.log"}
    assert scan_records(log).head(0).collect().is_empty()


def test_memory_is_that_of_a_table(log: Path, work: Work) -> None:
    count = scan_records(log).select(pl.len()).collect().item()
    assert count == work.records == 20_000
    assert work.most_records == 1_000, "a table ends with its segment"


def test_all_columns_have_the_types_of_the_frame() -> None:
    names = ["topic", "partition", *RECORD_COLUMN_NAMES, *COLUMN_NAMES]
    names.remove("batch")
    frame = scan_records(DATA / "codecs-java-0", columns=names)
    found = frame.collect()
    assert found.schema == frame.collect_schema()
    table = ks.read_records(DATA / "codecs-java-0", columns=names[2:])
    assert_frame_equal(found.select(names[2:]), table.to_polars())


def test_a_segment_a_tar_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "transactions-0" / "00000000000000000005.log"
    expected = ks.read_records(path).to_polars()
    one = scan_records(path).collect()
    assert_frame_equal(one.drop("topic", "partition"), expected)
    assert one["topic"].unique().to_list() == ["transactions"]
    (tmp_path / "orders-0").mkdir()
    monkeypatch.chdir(tmp_path / "orders-0")
    nameless = scan_records(path.read_bytes()).collect()
    assert nameless["topic"].null_count() == len(nameless) == len(expected)
    assert scan_records(path.read_bytes()).filter(COLUMN.partition >= 0).collect().is_empty()
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(DATA, "data")
    assert_frame_equal(scan_records(tmp_path / "data.tar").collect(), scan_records(DATA).collect())


@pytest.mark.parametrize("name", ["transactions-0", "transactions-0/00000000000000000005.log"])
def test_committed_records_are_those_of_an_eager_read(name: str) -> None:
    path = DATA / name
    found = scan_records(path, isolation="read_committed").filter(COLUMN.offset >= 8).collect()
    eager = ks.read_records(path, isolation="read_committed").to_polars()
    assert_frame_equal(found.drop("topic", "partition"), eager.filter(COLUMN.offset >= 8))
    assert len(eager) < len(ks.read_records(path)), "the log has aborted or open transactions"


@pytest.mark.filterwarnings("ignore::kafkascan.tables.table.IncompleteTableWarning")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("first", [0, 95, 110, 205, 320])
@pytest.mark.parametrize("is_indexed", [False, True])
def test_overlapping_segments_give_each_offset_once(
    tmp_path: Path, shape: str, first: int, is_indexed: bool
) -> None:
    folder = write_segments(tmp_path / "overlapping-0", SHAPES[shape])
    if is_indexed:
        write_indexes(folder, interval_bytes=1)
    predicate = COLUMN.offset.is_between(first, first + 50)
    eager = ks.read_records(folder).to_polars().filter(predicate)
    found = scan_records(folder).filter(predicate).collect()
    assert_frame_equal(found.drop("topic", "partition"), eager)


def test_damage_is_an_error_with_its_position_if_it_is_read(log: Path) -> None:
    path = log / f"{1_000:020}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(data)
    frame = scan_records(log, verify=True)
    for engine in ("in-memory", "streaming"):
        # Polars may wrap what a source raises.
        errors = (ks.ChecksumMismatchError, pl.exceptions.ComputeError)
        with pytest.raises(errors, match=f"{path.name}: position.*CHECKSUM_MISMATCH"):
            frame.collect(engine=engine)
    assert len(frame.filter(COLUMN.offset < 1_990).collect()) == 1_990


def test_wrong_arguments_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ks.format.errors.UnknownColumnError, match="offset"):
        scan_records(DATA, columns=["ofset"])
    with pytest.raises(ks.format.errors.UnknownColumnError, match="'batch'"):
        scan_records(DATA, columns=["batch"])
    with pytest.raises(ValueError, match="control"):
        scan_records(DATA, control="none")
    with pytest.raises(ks.format.errors.NoLogsError):
        scan_records(tmp_path)
