"""What the driver lists: nothing found is an error, not an empty result. Needs no JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkascan.format.errors import NoLogsError
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.planning import file_listing
from kafkascan.spark.planning.task_plan import list_selected
from tests.spark.logs import DATA, damaged_log, segment_path
from tests.support.transactional_logs import TransactionalLog


def listed(**options: Any) -> list[str]:
    return [file.path for log in list_selected(Options.parse(options)) for file in log.segments]


def test_a_folder_without_logs(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NoLogsError, match="no logs here"):
        listed(path=str(empty))
    assert listed(path=str(empty), ignoreMissingFiles="true") == []
    # One empty path among others is a mistake, too.
    with pytest.raises(NoLogsError, match=str(empty)):
        listed(paths=[str(DATA), str(empty)])


def test_a_pattern_of_folders(tmp_path: Path) -> None:
    paths = [segment_path(tmp_path / name, "orders") for name in ("b-1", "b-2", "b-[12]")]
    for path in paths:
        path.write_bytes(damaged_log().log)
    assert listed(path=f"{tmp_path}/b-?") == [str(path) for path in paths[:2]]
    # A folder with this name counts, not the pattern.
    assert listed(path=f"{tmp_path}/b-[12]") == [str(paths[2])]
    with pytest.raises(FileNotFoundError, match="no file matches"):
        listed(path=f"{tmp_path}/c-*")


def test_the_parent_of_a_data_dir(tmp_path: Path) -> None:
    segment_path(tmp_path / "broker", "orders").write_bytes(damaged_log().log)
    with pytest.raises(NoLogsError, match="there are logs in 'broker'"):
        listed(path=str(tmp_path))


def test_a_partition_without_live_segments(tmp_path: Path) -> None:
    path = segment_path(tmp_path, "orders")
    path.with_name(f"{path.name}.deleted").write_bytes(damaged_log().log)
    with pytest.raises(NoLogsError, match="no live segments"):
        listed(path=str(tmp_path))


def test_a_segment_with_a_successor_has_its_last_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large folder is read in parts; a broker may append and roll between two of them."""
    folder = TransactionalLog(tmp_path)
    folder.write([("data", 1)])
    scandir = os.scandir

    @contextmanager
    def scan_in_parts(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        def entries() -> Iterator[os.DirEntry[str]]:
            with scandir(path) as before:
                yield from before
            folder.write([("abort", 1), ("data", 1), ("roll", 0), ("commit", 1)])
            with scandir(path) as after:
                yield from [one for one in after if one.name == folder.path.name]

        yield entries()

    monkeypatch.setattr(file_listing.os, "scandir", scan_in_parts)
    (log,) = list_selected(Options.parse({"path": str(folder.folder)}))
    files = log.segments
    assert [one.size for one in files] == [os.path.getsize(one.path) for one in files]
    assert len(files) > 1


@pytest.mark.parametrize(
    "selection",
    [{"topics": "transaction"}, {"topicPattern": "x.*"}, {"partitions": "7"},
     {"pathGlobFilter": "*.lg"}],
)  # fmt: skip
def test_a_selection_of_nothing(selection: dict[str, str]) -> None:
    with pytest.raises(NoLogsError, match="no segments of the selected topics"):
        listed(path=str(DATA), **selection)
    assert listed(path=str(DATA), ignoreMissingFiles="true", **selection) == []


def test_a_misspelt_topic_is_answered_with_the_topics() -> None:
    with pytest.raises(NoLogsError, match="the topics are __cluster_metadata, "):
        listed(path=str(DATA), topics="transaction")


SELECTIONS = [
    {"topics": "orders"},
    {"topicPattern": "or.*"},
    {"subscribePattern": "^ord"},
    {"assign": '{"orders":[1]}'},
    {"topics": "orders", "partitions": "1"},
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda one: "-".join(one))
def test_folders_of_other_partitions_are_not_listed(
    tmp_path: Path, selection: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("orders", "other"):
        segment_path(tmp_path, topic, 1).write_bytes(damaged_log().log)
    expected = str(segment_path(tmp_path, "orders", 1))
    looked_at: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked_at.append(str(path)) or scandir(path))
    assert listed(path=str(tmp_path), **selection) == [expected]
    assert f"{tmp_path}/orders-1" in looked_at
    assert f"{tmp_path}/other-1" not in looked_at


def test_a_path_without_the_topic_is_no_mistake(tmp_path: Path) -> None:
    for folder, topic in (("a", "orders"), ("b", "other")):
        segment_path(tmp_path / folder, topic).write_bytes(damaged_log().log)
    paths = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert len(listed(paths=paths, topics="orders")) == 1
    (tmp_path / "b" / "other-0" / f"{0:020d}.log").unlink()
    with pytest.raises(NoLogsError, match="no live segments"):
        listed(paths=paths, topics="orders")


def test_a_file_that_is_given_with_its_folder_is_listed_once(tmp_path: Path) -> None:
    files = []
    for base in (0, 5):
        files.append(segment_path(tmp_path, "orders", base_offset=base))
        files[-1].write_bytes(damaged_log().log)
    folder = files[0].parent
    for paths in ([files[0], folder], [folder, files[1]], [files[1], files[0], files[1]]):
        options = Options.parse({"paths": list(map(str, paths))})
        (log,) = list_selected(options)
        assert (log.partition, log.folder) == (("orders", 0), str(folder))
        assert [file.path for file in log.segments] == list(map(str, files))


def test_a_leftover_that_is_given_with_its_folder_is_read_from_its_first_offset(
    tmp_path: Path,
) -> None:
    """It takes no log start offset from the folder, and is no part of its log."""
    segment = segment_path(tmp_path, "orders", base_offset=5)
    segment.write_bytes(damaged_log().log)
    leftover = segment.with_name(f"{0:020}.log.deleted")
    leftover.write_bytes(damaged_log().log)
    start = "0\n1\norders 0 7\n"
    (segment.parent.parent / "log-start-offset-checkpoint").write_text(start)
    for paths in ([leftover, segment.parent], [segment.parent, leftover]):
        folder, given = list_selected(Options.parse({"paths": list(map(str, paths))}))
        assert ([one.name for one in folder.segments], folder.log_start_offset) == (
            [segment.name], 7,
        )  # fmt: skip
        assert ([one.name for one in given.segments], given.log_start_offset) == (
            [leftover.name], 0,
        )  # fmt: skip
