"""Prefixes of an object store as data dirs and partitions: the same results as on disk."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.broker_state import read_offset_checkpoint, write_offset_checkpoint
from kafkascan.format.errors import NoLogsError, SourceReadError
from kafkascan.io import ObjectUrl
from kafkascan.logs import PartitionDir
from kafkascan.tables import IncompleteTableWarning
from tests.support.paths import GOLDEN
from tests.support.s3_server import S3Server, s3_server

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")

DATA_DIRS = sorted(GOLDEN.glob("kafka-*/data"))
DATA = GOLDEN / "kafka-4.4.0" / "data"
SEGMENT = f"{0:020}.log"
BUCKET = "prefixes"


@pytest.fixture
def store() -> Iterator[Callable[[Path], str]]:
    """Copies a folder to a store in memory, and returns the URL of the prefix."""
    memory = fsspec.filesystem("memory")

    def copy(folder: Path) -> str:
        memory.put(str(folder), "/prefixes/data", recursive=True)
        return "memory://prefixes/data"

    yield copy
    if memory.exists("/prefixes"):
        memory.rm("/prefixes", recursive=True)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server(BUCKET) as found:
        found.put_folder(DATA, "data")
        yield found


def partitions_of(data_dir: str | Path) -> list[PartitionDir]:
    return [one for one in ks.open_log_dir(data_dir).partitions if one.log_segments]


@pytest.mark.parametrize("data_dir", DATA_DIRS, ids=lambda path: path.parent.name)
def test_a_data_dir_in_a_store(data_dir: Path, store: Callable[[Path], str]) -> None:
    url = store(data_dir)
    found, expected = ks.open_log_dir(url), ks.open_log_dir(data_dir)
    assert str(found.path) == url
    assert [one.path.name for one in found.partitions] == [
        one.path.name if one.path != data_dir else "data" for one in expected.partitions
    ]
    tables = [ks.scan_log_dir(one, include="all").to_arrow() for one in (url, data_dir)]
    assert tables[0].num_rows > 10
    assert tables[0].equals(tables[1])
    in_url, on_disk = (ks.audit(one, deep=True).findings for one in (url, data_dir))
    assert [str(one) for one in in_url] == [str(one).replace(str(data_dir), url) for one in on_disk]
    assert ks.diff_logs(data_dir, url).is_same
    counts = [ks.count_records(one).to_columns() for one in (url, data_dir)]
    assert str(counts[0]) == str(counts[1])


@pytest.mark.parametrize("data_dir", DATA_DIRS, ids=lambda path: path.parent.name)
def test_partitions_in_a_store(data_dir: Path, store: Callable[[Path], str]) -> None:
    url, compared = store(data_dir), 0
    for one in partitions_of(data_dir):
        there = f"{url}/{one.path.name}" if one.path != data_dir else url
        try:
            records = ks.read_records(one.path, isolation="read_committed", control="include")
        except ks.KafkaScanError as error:
            with pytest.raises(type(error)):
                ks.read_records(there, isolation="read_committed", control="include")
            continue
        again = ks.read_records(there, isolation="read_committed", control="include")
        assert again.to_arrow().equals(records.to_arrow())
        in_parts = ks.iter_records(there, isolation="read_committed", control="include")
        assert sum(map(len, in_parts)) == len(records)
        compared += 1
    assert compared > 1


@pytest.mark.parametrize("trust_index", [False, True])
def test_lookups_in_a_store(trust_index: bool, store: Callable[[Path], str]) -> None:
    url, found = store(DATA), 0
    for one in partitions_of(DATA):
        there = f"{url}/{one.path.name}"
        for offset in (0, 7, 100):
            places = [
                ks.lookup_offset(path, offset, trust_index=trust_index)
                for path in (one.path, there)
            ]
            require_same_place(*places)
        times = [ks.read_records(one.path)["timestamp"]]
        for time in (times[0][:1].tolist() + times[0][-1:].tolist()) * bool(len(times[0])):
            places = [
                ks.lookup_timestamp(path, max(int(time), 1), trust_index=trust_index)
                for path in (one.path, there)
            ]
            require_same_place(*places)
            found += places[0] is not None
    assert found > 10


def require_same_place(on_disk: Any, in_store: Any, scheme: str = "memory://") -> None:
    assert (on_disk is None) == (in_store is None)
    if on_disk is not None:
        assert replace(on_disk, path="") == replace(in_store, path="")
        assert in_store.path.startswith(scheme)


def test_kafkas_own_topics_in_a_store(store: Callable[[Path], str]) -> None:
    url = store(DATA)
    for read, table in (
        (ks.read_groups, "offsets"),
        (ks.read_metadata, "image"),
        (ks.read_transaction_state, "transactions"),
    ):
        assert str(getattr(read(url), table)) == str(getattr(read(DATA), table))


def test_a_partition_reads_the_checkpoint_above_it(
    store: Callable[[Path], str], tmp_path: Path
) -> None:
    """The log start offset is in the data dir, outside of the prefix that is listed."""
    data_dir = tmp_path / "data"
    partition = Path(shutil.copytree(DATA / "small-segments-0", data_dir / "small-segments-0"))
    name = "log-start-offset-checkpoint"
    write_offset_checkpoint(data_dir / name, {("small-segments", 0): 30})
    url = f"{store(data_dir)}/{partition.name}"
    assert ks.open_log_dir(url).partitions[0].log_start_offset == 30
    assert ks.read_records(url)["offset"][0] == 30
    assert ks.read_records(url, log_start_offset=0)["offset"][0] == 0


def test_side_files_by_their_urls(store: Callable[[Path], str]) -> None:
    url = store(DATA)
    name = "log-start-offset-checkpoint"
    assert read_offset_checkpoint(f"{url}/{name}") == read_offset_checkpoint(DATA / name)
    index = "small-segments-0/" + SEGMENT.replace(".log", ".index")
    assert ks.read_index(f"{url}/{index}").tobytes() == ks.read_index(DATA / index).tobytes()


def test_salvage_of_a_prefix(store: Callable[[Path], str], tmp_path: Path) -> None:
    url = store(DATA / "small-segments-0")
    result = ks.salvage(url, tmp_path / "new-0")
    assert result.partitions
    assert ks.diff_logs(tmp_path / "new-0", url).is_same


def test_one_listing_and_no_request_for_sizes(server: S3Server) -> None:
    url = f"s3://{BUCKET}/data"
    requests = server.count_requests()
    log_dir = ks.open_log_dir(url, storage_options=server.options)
    sizes = [segment.size for _, segment in log_dir.segments()]
    assert len(sizes) > 20
    assert requests() <= 2  # a page has 1000 objects


def test_an_s3_bucket(server: S3Server) -> None:
    log_dir = ks.open_log_dir(f"s3://{BUCKET}/data/", storage_options=server.options)
    assert ks.scan_log_dir(log_dir).to_arrow().equals(ks.scan_log_dir(DATA).to_arrow())
    url = ObjectUrl(f"s3://{BUCKET}/data/transactions-0", server.options)
    assert len(ks.read_records(url, isolation="read_committed")) == len(
        ks.read_records(DATA / "transactions-0", isolation="read_committed")
    )
    with pytest.raises(NoLogsError, match=f"s3://{BUCKET}: .*'data'"):
        ks.open_log_dir(f"s3://{BUCKET}", storage_options=server.options)


def test_functions_that_take_options(server: S3Server, tmp_path: Path) -> None:
    url, options = f"s3://{BUCKET}/data", server.options
    partition = f"{url}/small-segments-0"
    headers = ks.scan_log_dir(url, storage_options=options).to_arrow()
    assert headers.equals(ks.scan_log_dir(DATA).to_arrow())
    assert ks.audit(url, verify=False, storage_options=options).batches > headers.num_rows > 100
    counts = ks.count_records(url, storage_options=options).counts["records"]
    assert counts.tolist() == ks.count_records(DATA).counts["records"].tolist()
    for trust_index in (False, True):
        found = ks.lookup_offset(partition, 100, trust_index=trust_index, storage_options=options)
        require_same_place(ks.lookup_offset(DATA / "small-segments-0", 100), found, "s3://")
        last = ks.lookup_timestamp(
            partition, "2020-01-01", trust_index=trust_index, storage_options=options
        )
        require_same_place(ks.lookup_timestamp(DATA / "small-segments-0", 1), last, "s3://")
    result = ks.salvage(partition, tmp_path / "new-0", storage_options=options)
    assert str(result.path) == partition
    assert ks.diff_logs(tmp_path / "new-0", ObjectUrl(partition, options)).is_same
    for read in (ks.read_groups, ks.read_metadata, ks.read_transaction_state):
        assert str(read(ks.open_log_dir(url, storage_options=options))) == str(read(DATA))
    for function in (ks.scan_log_dir, ks.audit, ks.count_records, ks.salvage):
        with pytest.raises(TypeError, match="URLs of stores"):
            function(DATA, storage_options=options)


def test_a_segment_of_a_store_reads_transactions_of_its_partition(server: S3Server) -> None:
    """As on disk: transactions may end in later segments."""
    name = sorted((DATA / "transactions-0").glob("*.log"))[0].name
    url = f"s3://{BUCKET}/data/transactions-0/{name}"
    records = ks.read_records(url, isolation="read_committed", storage_options=server.options)
    on_disk = ks.read_records(DATA / "transactions-0" / name, isolation="read_committed")
    assert records.to_arrow().equals(on_disk.to_arrow())


def test_an_object_that_is_replaced_after_the_listing(server: S3Server) -> None:
    url = server.put_folder(DATA / "small-segments-0", "replaced/topic-0")
    log_dir = ks.open_log_dir(url, storage_options=server.options)
    server.put(f"replaced/topic-0/{SEGMENT}", b"another content")
    with pytest.raises(SourceReadError, match="replaced"):
        ks.scan_batches(log_dir.partitions[0].segments[0])
    table = ks.scan_log_dir(log_dir)
    with pytest.warns(IncompleteTableWarning, match="replaced"):
        assert table.to_arrow().num_rows > 100  # of the other segments
    assert [one.symbol for one in table.problems] == ["CHANGED_WHILE_READ"]


def test_urls_of_no_prefix(server: S3Server) -> None:
    options = server.options
    with pytest.raises(FileNotFoundError, match=f"s3://{BUCKET}/nothing"):
        ks.open_log_dir(f"s3://{BUCKET}/nothing", storage_options=options)
    with pytest.raises(FileNotFoundError, match=f"s3://{BUCKET}/nothing"):
        ks.read_records(f"s3://{BUCKET}/nothing/", storage_options=options)
    with pytest.raises(NotADirectoryError, match="small-segments-0"):
        ks.open_log_dir(f"s3://{BUCKET}/data/small-segments-0/{SEGMENT}", storage_options=options)
    with pytest.raises(NotADirectoryError, match="lists nothing"):
        ks.open_log_dir("https://host/data")
    with pytest.raises(IsADirectoryError, match="partitions"):
        ks.read_records(f"s3://{BUCKET}/data", storage_options=options)
    server.put("other/brokers/1/topic-0/" + SEGMENT, (DATA / "headers-0" / SEGMENT).read_bytes())
    with pytest.raises(NoLogsError, match="brokers/1"):
        ks.open_log_dir(f"s3://{BUCKET}/other", storage_options=options)


def test_objects_that_stand_for_folders(server: S3Server) -> None:
    """Some tools store an empty object for a folder."""
    url = server.put_folder(DATA / "headers-0", "marked/headers-0")
    server.put("marked/", b"")
    server.put("marked/headers-0/", b"")
    records = ks.read_records(url, storage_options=server.options)
    assert len(records) == len(ks.read_records(DATA / "headers-0")) > 0


def test_no_secret_is_shown_or_pickled(server: S3Server) -> None:
    log_dir = ks.open_log_dir(f"s3://{BUCKET}/data", storage_options=server.options)
    partition = log_dir.partitions[0]
    shown = f"{log_dir!r} {partition!r} {partition.segments[0]!r} {partition.folder.parent!r}"
    assert "some-secret" not in shown
    for one in (log_dir, partition, partition.segments[0], log_dir.partitions[0].folder.parent):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(one)
