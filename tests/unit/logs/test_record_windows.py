"""The first and the last records of a log, and those around an offset or a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.logs import record_scan
from kafkascan.logs.log_finding import partition_dir
from kafkascan.logs.opened_logs import LogView, open_partition
from kafkascan.logs.queries.conditions import RowRange
from kafkascan.logs.queries.index_seek import RowAnchor
from kafkascan.logs.queries.record_matches import RecordMatch
from kafkascan.logs.queries.row_windows import Window
from kafkascan.logs.record_scan import RecordScan
from kafkascan.records.read_options import ReadOptions
from tests.support.command_line import DATA

LOG = DATA / "small-segments-0"
SCAN = RecordScan(options=ReadOptions(columns=("value",)))
EVERYTHING = ks.read_records(LOG, columns=("offset", "timestamp", "value"))


def view_of(path: Path) -> LogView:
    return open_partition(partition_dir(path))


def values_in(scan: RecordScan, window: Window) -> list[bytes | None]:
    return [one for table in scan.tables(view_of(LOG), window) for one in table.items("value")]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(), slice(None)),
        (Window(first=7), slice(7)),
        (Window(first=0), slice(0)),
        (Window(last=5), slice(-5, None)),
        (Window(last=10_000), slice(None)),
        (Window(around=RowAnchor.at(200, 3)), slice(197, 203)),
        (Window(around=RowAnchor.at(1, 3)), slice(0, 4)),
        (
            Window(around=RowAnchor.at(EVERYTHING["timestamp"][300].astype("M8[ms]"), 2)),
            slice(298, 302),
        ),
    ],
)
def test_windows(window: Window, expected: slice) -> None:
    assert (np.diff(EVERYTHING["timestamp"]) > 0)[298:302].all()
    assert values_in(SCAN, window) == EVERYTHING[expected].items("value")


def test_windows_of_selected_records() -> None:
    offsets = RowRange(from_offset=20, to_offset=40).condition("offset", "offset", "timestamp")
    some = RecordScan(options=SCAN.options, condition=offsets)
    assert values_in(some, Window(last=3)) == EVERYTHING[37:40].items("value")
    matching = RecordScan(options=SCAN.options, match=RecordMatch(key=b"no record has it"))
    assert values_in(matching, Window(last=3)) == []


def test_an_index_leads_to_the_last_records(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    iter_log = record_scan.iter_log

    def noting(log, options, problems, is_read, segments, position):  # type: ignore[no-untyped-def]
        read.append((segments[0].file_name, position))
        return iter_log(log, options, problems, is_read, segments, position)

    monkeypatch.setattr(record_scan, "iter_log", noting)
    assert values_in(SCAN, Window(last=5)) == EVERYTHING[-5:].items("value")
    ((name, position),) = read
    assert name in [one.file_name for one in view_of(LOG).segments[-2:]]
    assert position > 0


def test_the_problems_of_what_was_read_come_last(tmp_path: Path) -> None:
    log = tmp_path / "log-0"
    log.mkdir()
    data = (LOG / f"{0:020}.log").read_bytes()
    (log / f"{0:020}.log").write_bytes(data[:-3])
    scan = RecordScan(options=ReadOptions(on_corrupt="stop"))
    *tables, last = scan.tables(view_of(log), Window(last=2))
    assert sum(map(len, tables)) == 2
    assert (len(last), list(last.problems["symbol"])) == (0, ["TORN_TAIL"])
