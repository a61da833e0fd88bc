"""Options that limit a read by offset or timestamp, and the files that are planned."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning.read_plan import plan_read
from kafkascan.spark.rows.task_scan import scan_task
from tests.spark.logs import DATA, plain_batch, rows, segment_path, tasks
from tests.support.records import RecordV2, batch_of
from tests.support.segments import T0


def offsets(folder: Path, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(path=str(folder), **options)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for base_offset in (0, 20, 40):
        parts = [plain_batch(base_offset + n) for n in range(0, 20, 2)]
        segment_path(tmp_path, "a", base_offset=base_offset).write_bytes(b"".join(parts))
    return tmp_path


def test_offsets(folder: Path) -> None:
    assert offsets(folder) == list(range(60))
    for start, stop in ((0, 60), (19, 41), (20, 40), (7, 8), (59, 99), (60, 99), (-2, -1)):
        given = {
            "startingOffsets": f'{{"a":{{"0":{start}}}}}',
            "endingOffsets": f'{{"a":{{"0":{stop}}}}}',
        }
        whole = start < 0
        expected = list(range(60)) if whole else list(range(start, min(stop, 60)))
        assert offsets(folder, **given) == expected
        assert offsets(folder, **given, maxPartitionBytes=100) == expected
    (task,) = tasks(
        path=str(folder), startingOffsets='{"a":{"0":25}}', endingOffsets='{"a":{"0":30}}'
    )
    assert [one.file.base_offset for one in task.ranges] == [20], "other files are not opened"
    with pytest.raises(ValueError, match="in a batch query"):
        offsets(folder, startingOffsets='{"a":{"0":-1}}')
    with pytest.raises(ValueError, match="requires a stream"):
        offsets(folder, startingOffsets="latest")


def test_timestamps_select_offsets(folder: Path) -> None:
    assert offsets(folder, startingTimestamp=T0 + 33) == list(range(33, 60))
    assert offsets(folder, endingTimestamp=T0 + 33) == list(range(33))
    between = {"startingTimestamp": T0 + 5, "endingTimestamp": T0 + 50}
    assert offsets(folder, **between, maxPartitionBytes=200) == list(range(5, 50))
    assert offsets(folder, endingTimestamp=T0 + 1000) == list(range(60))


def test_records_after_the_first_late_one_are_read(tmp_path: Path) -> None:
    """As a broker does, the lookup finds the first late record; later records are not filtered."""
    late = [RecordV2(timestamp_delta=t, offset_delta=n) for n, t in enumerate((0, 50, 10))]
    log = plain_batch(0) + batch_of(late, base_offset=2, max_timestamp=T0 + 50) + plain_batch(5)
    segment_path(tmp_path, "a").write_bytes(log)
    assert offsets(tmp_path, startingTimestamp=T0 + 40) == [3, 4, 5, 6]


def test_no_record_is_late_enough(folder: Path) -> None:
    with pytest.raises(ValueError, match="startingOffsetsByTimestampStrategy=latest"):
        offsets(folder, startingTimestamp=T0 + 1000)
    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert offsets(folder, startingTimestamp=T0 + 1000, **lenient) == []


def test_times_by_partition(folder: Path) -> None:
    segment_path(folder, "a", 1).write_bytes(b"".join(plain_batch(n) for n in range(0, 10, 2)))

    def found(**options: Any) -> dict[int, list[int]]:
        of: dict[int, list[int]] = {0: [], 1: []}
        for row in rows(path=str(folder), **options):
            of[row["partition"]].append(row["offset"])
        return of

    def times(first: int, second: int) -> str:
        return json.dumps({"a": {"0": first, "1": second}})

    starts = found(startingOffsetsByTimestamp=times(T0 + 33, T0 + 4))
    assert starts == {0: list(range(33, 60)), 1: list(range(4, 10))}
    ends = found(endingOffsetsByTimestamp=times(T0 + 33, T0 + 400))
    assert ends == {0: list(range(33)), 1: list(range(10))}
    # -1 is the latest offset and -2 the earliest, as in Kafka's protocol.
    assert found(startingOffsetsByTimestamp=times(-1, -2)) == {0: [], 1: list(range(10))}
    assert found(endingOffsetsByTimestamp=times(-1, -2)) == {0: list(range(60)), 1: []}
    assert found(startingTimestamp=-1) == {0: [], 1: []}
    # A single timestamp takes precedence over those, and they over offsets.
    both = {"startingOffsetsByTimestamp": times(-1, -1), "startingOffsets": '{"a":{"0":-1}}'}
    assert found(**both, startingTimestamp=T0 + 8)[1] == [8, 9]
    assert found(**both) == {0: [], 1: []}
    part = json.dumps({"a": {"1": T0 + 8}})
    assert found(startingOffsetsByTimestamp=part) == {0: list(range(60)), 1: [8, 9]}
    with pytest.raises(ValueError, match="a-1: no record is at or after"):
        found(startingOffsetsByTimestamp=times(T0, T0 + 10))
    lenient = {"startingOffsetsByTimestampStrategy": "latest"}
    assert found(startingOffsetsByTimestamp=times(T0 + 59, T0 + 10), **lenient) == {0: [59], 1: []}
    times_of = {"startingOffsetsByTimestamp": {"a": {"2": 5}}}
    unknown = Options.parse({"path": str(folder)} | times_of)
    with pytest.raises(ValueError, match=r"startingOffsetsByTimestamp contains .*: a-2"):
        plan_read(unknown)


def test_selections_of_sparks_kafka_source(tmp_path: Path) -> None:
    for topic in ("orders", "old-orders", "orders-old", "__consumer_offsets", "__cluster_metadata"):
        for partition in range(2):
            segment_path(tmp_path, topic, partition).write_bytes(plain_batch(0, 1))

    def found(**options: str) -> list[str]:
        given = {"path": str(tmp_path)} | options
        ranges = [one for task in plan_read(Options.parse(given)) for one in task.ranges]
        return [f"{one.partition[0]}-{one.partition[1]}" for one in ranges]

    assert found(subscribe="orders") == ["orders-0", "orders-1"]
    assert found(assign='{"orders":[1],"orders-old":[0]}') == ["orders-1", "orders-old-0"]
    # A match anywhere in the name, and no topics that a broker does not list.
    assert len(found(subscribePattern="order")) == 6
    assert len(found(subscribePattern="^order")) == 4
    assert len(found(subscribePattern=".*")) == 6
    assert len(found(topicPattern=".*")) == 10
    assert len(found(subscribe="__consumer_offsets")) == 2
    for missing in ({"subscribe": "ordres"}, {"subscribePattern": "^x"}, {"assign": '{"x":[0]}'}):
        with pytest.raises(NoLogsError, match="no segments of the selected topics"):
            found(**missing)
    with pytest.raises(ValueError, match=r"assign contains partitions .*: orders-7"):
        found(assign='{"orders":[1,7]}')


def test_planning() -> None:
    everything = tasks(path=str(DATA), view="batches")
    assert len(everything) == 2, "opening each of the 42 files counts as 1 MiB of 32"
    many = tasks(path=str(DATA), minPartitions=8)
    assert 4 <= len(many) <= 20
    sizes = [sum(one.stop - one.start for one in task.ranges) for task in many]
    assert sum(sizes) == sum(path.stat().st_size for path in DATA.glob("*/*.log"))
    none = tasks(path=str(DATA), view="segments", where="topic = 'headers' and producer_id = 3")
    assert [one.partition[0] for task in none for one in task.ranges] == ["headers"]


def test_deleted_and_moving_files_are_not_read(folder: Path) -> None:
    log = folder / "a-0" / f"{20:020d}.log"
    for state in ("deleted", "cleaned", "swap"):
        log.with_name(f"{log.name}.{state}").write_bytes(log.read_bytes())
    moving = folder / f"a-0.{'0' * 32}-future"
    moving.mkdir()
    (moving / log.name).write_bytes(log.read_bytes())
    assert offsets(folder) == list(range(60))
    assert offsets(log.with_name(f"{log.name}.deleted")) == list(range(20, 40))
    assert offsets(folder, pathGlobFilter="*40.log") == list(range(40, 60))


def test_two_states_of_one_segment_are_two_files(folder: Path) -> None:
    log = segment_path(folder, "a", base_offset=40)
    log.with_name(f"{log.name}.deleted").write_bytes(log.read_bytes())
    given = {"startingOffsets": '{"a":{"0":50}}'}
    found = offsets(folder / "a-0" / "*40.log*", **given)
    assert sorted(found) == sorted([*range(50, 60)] * 2)


def test_a_file_that_changed_since_it_was_listed(folder: Path) -> None:
    options = Options.parse({"path": str(folder)})
    (task,) = tasks(path=str(folder))
    path = segment_path(folder, "a", base_offset=40)
    with path.open("ab") as file:
        file.write(plain_batch(60))
    found = [n for batch in scan_task(task, options) for n in batch["offset"].to_pylist()]
    assert found == list(range(60)), "what was appended since is not seen"
    segment_path(folder, "a", base_offset=20).unlink()
    with pytest.raises(FileNotFoundError):
        list(scan_task(task, options))
    found = [
        n
        for batch in scan_task(task, options.replace(ignore_missing_files=True))
        for n in batch["offset"].to_pylist()
    ]
    assert found == [*range(20), *range(40, 60)]


@pytest.mark.parametrize("view", ["records", "batches", "segments"])
@pytest.mark.parametrize("prefetch", ["0", "3"])
def test_a_file_that_was_truncated_between_two_batches(
    folder: Path, view: str, prefetch: str
) -> None:
    """A truncation since the listing is an error, also where the file still ends cleanly."""
    given = {"path": str(folder), "view": view, "mode": "FAILFAST", "prefetch": prefetch}
    options = Options.parse(given)
    (task,) = tasks(**given)
    path = segment_path(folder, "a", base_offset=40)
    size = path.stat().st_size
    os.truncate(path, size // 10 * 5)
    assert ks.scan_batches(path).end is ks.ScanEnd.CLEAN
    message = rf"{path}: position {size // 2}: the file was truncated from {size} to {size // 2}"
    with pytest.raises(ks.format.SourceReadError, match=message):
        list(scan_task(task, options))
    if view == "segments":
        lenient = scan_task(task, options.replace(mode=None))
        row = [row for batch in lenient for row in batch.to_pylist()][-1]
        assert row["status"] == "UNREADABLE"
        assert "was truncated" in row["error"]


def test_ranges_of_a_truncated_file(folder: Path) -> None:
    """Each range reports it, also one that ends before the truncation."""
    given = {"path": str(folder), "maxPartitionBytes": 300, "prefetch": "0"}
    options, planned = Options.parse(given), tasks(**given)
    path = segment_path(folder, "a", base_offset=40)
    os.truncate(path, path.stat().st_size // 10 * 9)
    for task in planned:
        if any(one.file.path == str(path) for one in task.ranges):
            with pytest.raises(ks.format.SourceReadError, match="was truncated"):
                list(scan_task(task, options))
