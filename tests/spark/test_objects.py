"""Segments in object stores: the same rows, read in bounded windows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.spark.files import open_file
from kafkascan.spark.options import Options
from kafkascan.spark.stores import ObjectReader
from tests.spark.logs import DATA, KILLED_DATA, OLD_DATA, multiset, plain_batch, rows, tasks
from tests.support.segments import Rig


class Object:
    """Bytes that are read at positions, a few at a time."""

    def __init__(self, data: bytes, most: int = 1 << 30) -> None:
        self.path, self.size = "store://bucket/object", len(data)
        self._data, self._most = data, most
        self.reads: list[tuple[int, int]] = []

    def read_at(self, position: int, size: int) -> bytes:
        self.reads.append((position, size))
        return self._data[position : position + min(size, self._most)]


@pytest.mark.parametrize("most", [1, 13, 1 << 20])
def test_a_source_that_is_read_at_positions(most: int) -> None:
    for log in (*OLD_DATA.glob("*/*.log"), *KILLED_DATA.glob("*/*.log")):
        data = log.read_bytes()
        if most == 1 and len(data) > 3000:
            continue
        with ks.Source(Object(data, most)) as source:
            assert (source.is_file, source.is_in_memory) == (False, False)
            scan, expected = ks.scan_batches(source), ks.scan_batches(data)
            assert (scan.batches == expected.batches).all()
            assert (scan.end, scan.valid_bytes) == (expected.end, expected.valid_bytes)
            assert ks.verify_crcs(source, scan.batches).all()
            found, records = ks.read_records(source), ks.read_records(data)
            assert found.to_arrow().equals(records.to_arrow())


def test_an_object_that_is_shorter_than_it_says() -> None:
    log = Rig().batches(5).log
    lying = Object(log)
    lying.size += 100
    with ks.Source(lying) as source, pytest.raises(ks.SourceReadError, match="store://bucket"):
        ks.scan_batches(source)
    assert len(ks.scan_batches(ks.Source(Object(log), max_size=len(log) - 1))) == 4


def test_a_file_of_which_no_more_is_seen(tmp_path: Path) -> None:
    path, log = tmp_path / "x.log", Rig().batches(5).log
    path.write_bytes(log)
    for memory_map in (True, False):
        with ks.Source(path, memory_map=memory_map, max_size=len(log) // 5 * 2) as source:
            assert source.size == len(log) // 5 * 2
            assert len(ks.scan_batches(source)) == 2
    assert ks.Source(path, max_size=10**9).size == len(log)
    with pytest.raises(TypeError):
        ks.Source(log, max_size=1)
    with pytest.raises(ValueError, match="negative"):
        ks.Source(path, max_size=-1)


def test_few_reads_serve_many_windows() -> None:
    log = b"".join(plain_batch(n, 1, 1000) for n in range(20_000))
    store = Object(log)
    reader = ObjectReader(store.path, store.size, store.read_at)
    source = ks.Source(reader)
    scan = ks.scan_batches(source)
    assert len(scan) == 20_000
    assert len(store.reads) <= 4, "21 MB in blocks of 8 MiB"
    assert max(size for _, size in store.reads) <= 1 << 23


def test_an_object_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers, checksums and records of a piece come from the same block."""
    from kafkascan.spark import scan

    log = b"".join(plain_batch(n, 1, 1000) for n in range(20_000))
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(log)
    store = Object(log)
    monkeypatch.setattr(
        scan,
        "open_file",
        lambda file, options: ks.Source(ObjectReader(store.path, store.size, store.read_at)),
    )
    found = rows(path=str(tmp_path), columns="offset,value", prefetch="0")
    assert len(found) == 20_000
    assert sum(size for _, size in store.reads) < 1.5 * len(log)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """An S3 server of its own, with the golden logs in a bucket."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: make .venv/.dev")
    s3fs = pytest.importorskip("s3fs")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
    fs = s3fs.S3FileSystem(**options)
    fs.mkdir("logs")
    fs.put(str(DATA), "logs/data", recursive=True)
    try:
        yield options
    finally:
        running.stop()


def test_an_s3_server(store: dict[str, Any]) -> None:
    settings = json.dumps(store)
    for view in ("records", "batches"):
        expected = multiset(rows(path=str(DATA), view=view))
        given = {"view": view, "storageOptions": settings, "path": "s3://logs/data"}
        assert multiset(rows(**given)) == expected
    one = "s3://logs/data/headers-0/00000000000000000000.log"
    expected = multiset(rows(path=str(DATA / "headers-0")))
    for path in (one, "s3://logs/data/head*-0", "s3://logs/data/headers-0/*.log"):
        assert multiset(rows(path=path, storageOptions=settings)) == expected
    with pytest.raises(FileNotFoundError):
        rows(path="s3://logs/nothing", storageOptions=settings)
    (task,) = tasks(path=one, storageOptions=settings, maxPartitionBytes=1000)
    assert len(task.ranges) == 1, "an object is not cut"


def test_s3_through_pyarrow(store: dict[str, Any]) -> None:
    arrow = {
        "access_key": store["key"],
        "secret_key": store["secret"],
        "endpoint_override": store["endpoint_url"],
        "region": "us-east-1",
    }
    given = {"filesystem": "pyarrow", "storageOptions": json.dumps(arrow)}
    expected = multiset(rows(path=str(DATA), topics="headers,small-segments"))
    found = rows(path="s3://logs/data", topics="headers,small-segments", **given)
    assert multiset(found) == expected
    options = Options.parse({"path": "s3://logs/data", **given})
    (task,) = tasks(path="s3://logs/data/headers-0/00000000000000000000.log", **given)
    source = open_file(task.ranges[0].file, options)
    assert source.path.startswith("s3://logs/data/headers-0/")
    assert np.frombuffer(source.window(0, 8), ">i8")[0] == 0
