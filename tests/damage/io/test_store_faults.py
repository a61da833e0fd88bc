"""Stores that fail, throttle, or whose objects change while they are read."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.errors import SourceReadError
from kafkascan.io.stores.stored_objects import FsspecObject, StoredObject, open_object
from tests.spark.logs import plain_batch
from tests.support.range_server import RangeServer, range_server
from tests.support.segments import Rig

pytest.importorskip("obstore")
fsspec = pytest.importorskip("fsspec")

NAME = "/topic-0/00000000000000000000.log"
AT_ONCE = {
    "retry_config": {
        "max_retries": 3,
        "backoff": {
            "init_backoff": timedelta(milliseconds=1),
            "max_backoff": timedelta(milliseconds=2),
        },
    }
}
OLD, NEW = b"a" * 60_000, b"b" * 60_000
"""Contents of the same size: nothing but the ETag tells them apart."""


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with range_server() as found:
        found.objects[NAME] = OLD
        yield found


@pytest.fixture
def stored(server: RangeServer) -> StoredObject:
    return open_object(server.url + NAME, AT_ONCE)


@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_a_request_that_fails_once_is_repeated(
    server: RangeServer, stored: StoredObject, fault: str
) -> None:
    failures = iter([fault])
    server.fault = lambda _, asked: next(failures, None)
    assert stored.read(100, 20_000) == OLD[100:20_100]
    assert len(server.ranges) == 2


@pytest.mark.parametrize(
    ("fault", "reason"), [("busy", "503"), ("cut", "body"), ("short", "got 100..20099")]
)
def test_a_store_that_goes_on_failing(
    server: RangeServer, stored: StoredObject, fault: str, reason: str
) -> None:
    server.fault = lambda _, asked: fault
    with pytest.raises(SourceReadError, match=reason) as caught:
        stored.read(100, 20_000)
    assert caught.value.path == server.url + NAME
    assert caught.value.position == 100
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_permission_is_denied(server: RangeServer, stored: StoredObject) -> None:
    server.fault = lambda _, asked: "forbidden"
    with pytest.raises(PermissionError, match="403") as caught:
        stored.read(0, 10)
    assert caught.value.filename == server.url + NAME


@pytest.mark.parametrize("fault", [None, "unconditional"])
def test_an_object_that_is_replaced_is_never_mixed(
    server: RangeServer, stored: StoredObject, fault: str | None
) -> None:
    server.fault = lambda _, asked: fault
    assert stored.read(0, 100) == OLD[:100]
    server.objects[NAME] = NEW
    require_replaced(stored)


def test_an_object_that_is_replaced_by_fsspec() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/faults/object", OLD)
    stored = FsspecObject("memory://faults/object", {})
    assert stored.read(0, 100) == OLD[:100]
    memory.pipe("/faults/object", NEW)
    require_replaced(stored)


def require_replaced(stored: StoredObject) -> None:
    with pytest.raises(SourceReadError, match="replaced") as caught:
        stored.read(100, 100)
    assert caught.value.position == 100


def test_an_object_that_is_deleted(server: RangeServer, stored: StoredObject) -> None:
    del server.objects[NAME]
    with pytest.raises(SourceReadError, match="deleted"):
        stored.read(100, 100)


def test_a_scan_of_an_object_that_is_replaced_halfway(server: RangeServer) -> None:
    log = Rig().batches(40, b"x" * 100_000).log
    server.objects[NAME] = log
    asked = len(server.ranges)
    assert len(ks.scan_batches(server.url + NAME)) == 40
    requests = len(server.ranges) - asked
    assert requests > 2

    def replace_halfway(one: RangeServer, _: tuple[int, int]) -> None:
        if len(one.ranges) - asked - requests > requests // 2:
            one.objects[NAME] = log[:-1] + b"!"

    server.fault = replace_halfway
    with pytest.raises(SourceReadError, match="replaced"):
        ks.scan_batches(server.url + NAME)


LARGE = b"".join(plain_batch(offset, 1, 100_000) for offset in range(80))
INDEX = ks.build_offset_index(ks.scan_batches(LARGE).batches, base_offset=0).tobytes()
INDEX_NAME = NAME.replace(".log", ".index")


def scan(url: str) -> bytes:
    return ks.scan_batches(url, storage_options=AT_ONCE).batches.tobytes()


def read(url: str) -> bytes:
    return ks.read_records(url, storage_options=AT_ONCE).batches.tobytes()


@pytest.fixture
def large(server: RangeServer) -> RangeServer:
    """A log that is requested in many ranges at the same time."""
    server.objects[NAME], server.objects[INDEX_NAME] = LARGE, INDEX
    return server


@pytest.mark.parametrize("work", [scan, read])
@pytest.mark.parametrize("fault", ["busy", "cut"])
def test_some_of_many_requests_fail_once(
    large: RangeServer, work: Callable[[str], bytes], fault: str
) -> None:
    failed: set[int] = set()

    def fail_once(_: RangeServer, asked: tuple[int, int]) -> str | None:
        # After a cut, the client asks for the rest: a range with the same end.
        is_first = asked[1] not in failed
        failed.add(asked[1])
        return fault if is_first else None

    large.fault = fail_once
    assert work(large.url + NAME) == ks.scan_batches(LARGE).batches.tobytes()


@pytest.mark.parametrize("work", [scan, read])
@pytest.mark.parametrize(("fault", "reason"), [("busy", "503"), ("cut", "body"), ("short", "got")])
def test_one_of_many_ranges_goes_on_failing(
    large: RangeServer, work: Callable[[str], bytes], fault: str, reason: str
) -> None:
    failing = len(LARGE) - 1_000_000
    large.fault = lambda _, asked: fault if asked[1] > failing else None
    with pytest.raises(SourceReadError, match=reason) as caught:
        work(large.url + NAME)
    assert caught.value.path == large.url + NAME
    assert 0 <= caught.value.position < len(LARGE)


@pytest.mark.parametrize("work", [scan, read])
@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_an_object_changes_while_many_requests_are_in_flight(
    large: RangeServer, work: Callable[[str], bytes], change: str
) -> None:
    def change_it(one: RangeServer, asked: tuple[int, int]) -> None:
        if asked[1] > len(LARGE) // 3:
            one.objects[NAME] = LARGE[:-1] + b"!"
            if change == "deleted":
                del one.objects[NAME]

    large.fault = change_it
    with pytest.raises(SourceReadError, match=change):
        work(large.url + NAME)


@pytest.mark.parametrize("fault", ["busy", "forbidden", "cut", "short"])
def test_an_index_that_cannot_be_read_changes_no_row(large: RangeServer, fault: str) -> None:
    large.fault = lambda _, asked: fault if asked[1] < len(INDEX) else None
    assert scan(large.url + NAME) == ks.scan_batches(LARGE).batches.tobytes()


def test_no_secret_is_in_an_error(server: RangeServer) -> None:
    server.fault = lambda _, asked: "busy"
    url = server.url.replace("http://", "http://someone:password@") + NAME
    options = {**AT_ONCE, "client_options": {"user_agent": "secret-agent"}}
    with pytest.raises(SourceReadError) as caught:
        ks.scan_batches(url, storage_options=options)
    text = f"{caught.value!r} {caught.value} {pickle.dumps(caught.value)!r}"
    assert "password" not in text
    assert "secret-agent" not in text
    assert caught.value.__cause__ is None


def test_an_empty_object(server: RangeServer) -> None:
    server.objects[NAME] = b""
    scan = ks.scan_batches(server.url + NAME)
    assert (len(scan), scan.trailing_bytes) == (0, 0)
    assert np.array_equal(scan.batches, ks.scan_batches(b"").batches)
