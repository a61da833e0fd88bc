"""URLs as sources: the same tables as from the file, and no secret in any text."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.errors import SourceReadError
from kafkascan.format.shown_places import shown_url
from kafkascan.io import ObjectUrl, Source
from tests.spark.logs import plain_batch
from tests.support.paths import GOLDEN
from tests.support.range_server import RangeServer, range_server

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")

SEGMENT = sorted((GOLDEN / "kafka-4.4.0" / "data").glob("*/*.log"))[-1]
OFFSETS = SEGMENT.name


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with range_server() as found:
        found.objects[f"/topic-0/{OFFSETS}"] = SEGMENT.read_bytes()
        yield found


def require_same_as_file(url: str, options: dict[str, object] | None = None) -> None:
    file = ks.scan_batches(SEGMENT)
    scan = ks.scan_batches(url, storage_options=options)
    assert len(scan) > 0
    assert scan.path == url
    assert (scan.end, scan.valid_bytes) == (file.end, file.valid_bytes)
    assert np.array_equal(scan.batches, file.batches)
    tables = list(ks.iter_batches(url, rows=1, storage_options=options))
    assert np.array_equal(np.concatenate(tables), file.batches)
    assert ks.verify_crcs(url, scan.batches, storage_options=options).all()
    records = ks.read_records(url, control="include", storage_options=options)
    assert records.to_arrow().equals(ks.read_records(SEGMENT, control="include").to_arrow())
    in_parts = ks.iter_records(url, control="include", storage_options=options)
    assert sum(map(len, in_parts)) == len(records)
    committed = ks.read_records(url, isolation="read_committed", storage_options=options)
    assert committed.to_arrow().equals(
        ks.read_records(SEGMENT.read_bytes(), isolation="read_committed").to_arrow()
    )
    with ks.open_segment(url, storage_options=options) as segment:
        assert segment.file_name == url.rpartition("/")[2]
        assert np.array_equal(ks.scan_batches(segment).batches, file.batches)


def test_a_web_server(server: RangeServer) -> None:
    require_same_as_file(f"{server.url}/topic-0/{OFFSETS}")


def test_salvage_of_a_segment_on_a_web_server(server: RangeServer, tmp_path: Path) -> None:
    result = ks.salvage(f"{server.url}/topic-0/{OFFSETS}", tmp_path / "topic-0")
    assert result.partitions[0].error is None
    assert (tmp_path / "topic-0" / OFFSETS).read_bytes() == SEGMENT.read_bytes()


def test_fsspec_reads_schemes_that_obstore_does_not() -> None:
    fsspec.filesystem("memory").pipe(f"/topic-0/{OFFSETS}", SEGMENT.read_bytes())
    require_same_as_file(f"memory://topic-0/{OFFSETS}")


def test_a_file_system_with_one_connection_is_asked_one_thing_at_a_time() -> None:
    class OneConnection(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        """As over FTP: what two threads ask for at the same time gets mixed."""

        protocol = "oneconnection"
        store: ClassVar[dict[str, object]] = {}
        busy = threading.Lock()

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("oneconnection:", "memory:")))

        def cat_file(self, *args: Any, **kwargs: Any) -> bytes:
            assert self.busy.acquire(blocking=False), "two requests at the same time"
            try:
                time.sleep(0.005)
                return bytes(super().cat_file(*args, **kwargs))
            finally:
                self.busy.release()

    fsspec.register_implementation("oneconnection", OneConnection, clobber=True)
    log = b"".join(plain_batch(offset, 1, 200_000) for offset in range(200))
    index = ks.build_offset_index(ks.scan_batches(log).batches, base_offset=0).tobytes()
    store = fsspec.filesystem("oneconnection")
    store.pipe(f"/topic-0/{OFFSETS}", log)
    store.pipe(f"/topic-0/{OFFSETS}".replace(".log", ".index"), index)
    url = f"oneconnection://topic-0/{OFFSETS}"
    assert np.array_equal(ks.scan_batches(url).batches, ks.scan_batches(log).batches)
    assert len(ks.read_records(url)) == 200


def test_a_file_url_is_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a b-0" / OFFSETS
    path.parent.mkdir()
    path.write_bytes(SEGMENT.read_bytes())
    with Source(path.as_uri()) as source:
        assert source.path == str(path)
        assert source.is_in_memory
    assert len(ks.read_records(path.parent.as_uri())) == len(ks.read_records(path))


def test_s3_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "some-key-id", "aws_secret_access_key": "some-secret"}
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
        client.create_bucket(Bucket="logs")
        client.put_object(Bucket="logs", Key=f"topic-0/{OFFSETS}", Body=SEGMENT.read_bytes())
        options: dict[str, object] = {**keys, "endpoint": endpoint, "region": "us-east-1"}
        options["client_options"] = {"allow_http": True}
        require_same_as_file(f"s3://logs/topic-0/{OFFSETS}", options)
        with pytest.raises(FileNotFoundError, match="s3://logs/nothing"):
            ks.scan_batches("s3://logs/nothing", storage_options=options)
    finally:
        server.stop()


def test_options_are_not_shown_or_pickled() -> None:
    url = ObjectUrl("s3://bucket/key", {"aws_secret_access_key": "topsecret"})
    assert "topsecret" not in repr(url) + str(url)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(url)
    assert pickle.loads(pickle.dumps(ObjectUrl("s3://bucket/key"))) == ObjectUrl("s3://bucket/key")


def test_a_shown_url_has_no_password_and_no_signature() -> None:
    url = "https://user:pass@host:80/a/b.log?X-Amz-Signature=secret"
    assert shown_url(url) == "https://host:80/a/b.log"
    assert shown_url("abfss://container@account/a") == "abfss://container@account/a"
    assert shown_url("s3://user:pass@bucket/a?sig=secret") == "s3://bucket/a"
    assert shown_url("/a/b?c") == "/a/b?c"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:topsecret@127.0.0.1:1/a.log?sig=topsecret",
        "abfs://user:topsecret@host/a.log",
        "nope://user:topsecret@host/a.log?topsecret",
    ],
)
def test_no_error_of_a_library_is_the_context_of_ours(url: str) -> None:
    with pytest.raises((SourceReadError, ValueError)) as caught:
        ks.scan_batches(url)
    assert shown_url(url) in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None
    assert "topsecret" not in f"{caught.value!r} {caught.value.args}"


@pytest.mark.parametrize("source", ["/some/path", b"bytes", "file:///some/path"])
def test_options_are_for_urls_of_stores(source: str | bytes) -> None:
    with pytest.raises(TypeError, match="URLs of stores"):
        ks.scan_batches(source, storage_options={})


def test_unknown_options_are_named() -> None:
    with pytest.raises(ValueError, match=r"storage_options.*no_such_option"):
        ks.scan_batches("s3://bucket/key", storage_options={"no_such_option": "value"})


def test_options_that_a_library_does_not_survive() -> None:
    """obstore panics for an option of the client among those of S3."""
    with pytest.raises(ValueError, match="storage_options"):
        ks.scan_batches("s3://bucket/key", storage_options={"allow_http": "true"})
