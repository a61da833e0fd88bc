"""What is a problem of a whole log: every function names it, and goes on with what follows."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.io import folders
from kafkascan.io.source_protocols import FilePins
from kafkascan.tables.table import Problem, Problems
from tests.spark.logs import plain_batch
from tests.support.partitions import HealthyPartition
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of

# As many records as a log had whose middle segment was cut: 1,685 were counted as all of them.
SEGMENTS, BATCHES, RECORDS = 3, 20, 5
STEP = BATCHES * RECORDS


def _batch(base_offset: int, records: int = RECORDS, **fields: int) -> bytes:
    return batch_of(
        [RecordV2(value=b"v" * 50, offset_delta=delta) for delta in range(records)],
        base_offset=base_offset, **fields,
    )  # fmt: skip


def write_log(folder: Path) -> list[Path]:
    """Write a log of three segments; return their files."""
    folder.mkdir(parents=True)
    paths = [folder / f"{number * STEP:020}.log" for number in range(SEGMENTS)]
    for number, path in enumerate(paths):
        bases = range(number * STEP, (number + 1) * STEP, RECORDS)
        path.write_bytes(b"".join(map(_batch, bases)))
    return paths


def _scanned(path: Path) -> Problems:
    table = ks.scan_log_dir(path)
    for _ in table:
        pass
    return table.problems


READERS: dict[str, Callable[[Path], Problems]] = {
    "count_records": lambda path: ks.count_records(path).problems,
    "count_records deep": lambda path: ks.count_records(path, deep=True).problems,
    "read_transactions": lambda path: ks.read_transactions(path).problems,
    "read_producers": lambda path: ks.read_producers(path).problems,
    "advise": lambda path: ks.advise(path, sample=1, choices=["none"]).problems,
    "scan_log_dir": _scanned,
    "read_fingerprints": lambda path: ks.analysis.read_fingerprints(path).problems,
    "diff_logs": lambda path: ks.diff_logs(path, path).problems,
}


@pytest.fixture
def log(tmp_path: Path) -> list[Path]:
    return write_log(tmp_path / "orders-0")


@pytest.fixture(params=READERS)
def read(request: pytest.FixtureRequest) -> Callable[[Path], Problems]:
    return READERS[request.param]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: -len(_batch(0)) - 7])


def _cut_between_batches(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: -3 * len(_batch(0))])


def _fill_with_zeros(path: Path) -> None:
    data = path.read_bytes()
    kept = 12 * len(_batch(0))
    path.write_bytes(data[:kept] + bytes(len(data) - kept))


def _flip_a_length(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5 * len(_batch(0)) + 8] ^= 0x40  # a gigabyte: the batch is incomplete
    path.write_bytes(data)


def _shorten_a_length(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5 * len(_batch(0)) + 10] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], None], str | None]] = {
    "cut": (_cut, "CUT_SEGMENT"),
    "cut between batches": (_cut_between_batches, "OFFSET_GAP"),
    "zeros": (_fill_with_zeros, "CUT_SEGMENT"),
    "a flipped length": (_flip_a_length, None),
    "another length": (_shorten_a_length, None),
    "deleted": (Path.unlink, "OFFSET_GAP"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_segment_in_the_middle(
    log: list[Path], read: Callable[[Path], Problems], damage: str
) -> None:
    spoil, symbol = DAMAGE[damage]
    assert not read(log[0].parent)
    spoil(log[1])
    problems = read(log[0].parent)
    missing = [one for one in problems if one.rows_missing]
    assert missing
    assert symbol in (None, *(one.symbol for one in missing))
    assert {(one.topic, one.partition) for one in missing} == {("orders", 0)}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_count_is_not_exact(log: list[Path], damage: str) -> None:
    whole = ks.count_records(log[0].parent)
    assert whole.is_exact.all()
    assert whole["records"].tolist() == [SEGMENTS * STEP]
    DAMAGE[damage][0](log[1])
    found = ks.count_records(log[0].parent)
    assert not found.is_exact.any()
    assert found["records"][0] < SEGMENTS * STEP  # but the next segment counts
    assert found["end_offset"].tolist() == [SEGMENTS * STEP]
    with pytest.warns(ks.tables.IncompleteTableWarning, match="rows or values are missing"):
        found.to_arrow()


def _problem(path: Path, symbol: str) -> Problem:
    (found,) = ks.count_records(path).problems
    assert found.symbol == symbol
    return found


def test_the_end_of_a_log(log: list[Path]) -> None:
    """Of the last segment, a broker removes an incomplete batch; it may also preallocate a file."""
    whole = log[2].read_bytes()
    _cut(log[2])
    torn = _problem(log[0].parent, "TORN_TAIL")
    assert (torn.severity, torn.rows_missing) == (ks.Severity.WARNING, False)
    log[2].write_bytes(whole + bytes(4096))
    zeros = _problem(log[0].parent, "ZERO_TAIL")
    assert (zeros.severity, zeros.rows_missing) == (ks.Severity.NOTE, False)
    assert ks.count_records(log[0].parent).is_exact.all()


def test_damage_that_looks_like_a_torn_tail(
    log: list[Path], read: Callable[[Path], Problems]
) -> None:
    _flip_a_length(log[2])
    assert any(one.rows_missing for one in read(log[0].parent))
    with pytest.raises(ks.logs.IncompleteLogError, match="14 intact batches follow"):
        ks.read_records(log[0].parent)
    (problem,) = ks.read_records(log[0].parent, on_corrupt="stop").problems
    assert (problem.symbol, problem.severity) == ("TORN_TAIL", ks.Severity.ERROR)
    assert problem.rows_missing


def test_an_offset_that_is_too_high_in_the_middle(log: list[Path]) -> None:
    data = bytearray(log[1].read_bytes())
    data[5 * len(_batch(0)) + 2] ^= 1
    log[1].write_bytes(data)
    with pytest.raises(ks.logs.IncompleteLogError, match="the offset then goes back to 130;"):
        ks.read_records(log[0].parent)


def test_gaps_of_a_compacted_log_are_no_problem(log: list[Path], tmp_path: Path) -> None:
    folder = log[0].parent
    log[1].unlink()
    gap = _problem(folder, "OFFSET_GAP")
    assert (gap.severity, gap.rows_missing, gap.position) == (ks.Severity.WARNING, True, 0)
    assert "offsets from 100 to 199 are missing; compaction" in gap.message
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 150\n")
    assert not ks.count_records(folder).problems
    checkpoint.write_text("not a checkpoint")
    ignored, again = ks.count_records(folder).problems
    assert (ignored.path, ignored.rows_missing, again) == (str(checkpoint), False, gap)
    checkpoint.unlink()
    # A batch that the cleaner has removed records from, behind the gap.
    log[2].write_bytes(_batch(2 * STEP, last_offset_delta=9) + _batch(2 * STEP + 10))
    assert not ks.count_records(folder).problems


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_compacted_topics_of_kafka(tmp_path: Path, topic: str) -> None:
    write_log(tmp_path / f"{topic}-3")[1].unlink()
    assert not ks.count_records(tmp_path).problems


def test_gaps_before_the_start_offset_are_not_asked_for(log: list[Path], tmp_path: Path) -> None:
    log[1].unlink()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 205\n")
    for read in READERS.values():
        assert not read(log[0].parent)


def test_gaps_and_disorder_between_batches(log: list[Path]) -> None:
    data = log[2].read_bytes()
    size = len(_batch(0))
    log[2].write_bytes(data[: 3 * size] + data[5 * size : 7 * size] + data[8 * size :])
    gap = _problem(log[0].parent, "OFFSET_GAP")
    assert gap.position == 3 * size
    assert "offsets from 215 to 224 are missing, and 1 more ranges" in gap.message
    log[2].write_bytes(data[: 4 * size] + _batch(3) + data[5 * size :])
    found = {one.symbol: one for one in ks.count_records(log[0].parent).problems}
    assert found.keys() == {"OFFSET_OUT_OF_SEGMENT", "OFFSET_OVERLAP", "OFFSET_GAP"}
    for symbol in ("OFFSET_OUT_OF_SEGMENT", "OFFSET_OVERLAP"):
        assert found[symbol].position == 4 * size
        assert not found[symbol].rows_missing


def test_offsets_below_the_name_of_a_segment(log: list[Path]) -> None:
    for path in log[:2]:
        path.unlink()
    log[2].rename(log[2].with_name(f"{500:020}.log"))
    found = _problem(log[0].parent, "OFFSET_OUT_OF_SEGMENT")
    assert not found.rows_missing


DATA_DIRS = sorted(
    path for path in GOLDEN.glob("kafka-*/*") if path.is_dir() and path.name.startswith("data")
)


@pytest.mark.parametrize("data_dir", DATA_DIRS, ids=lambda path: path.parent.name)
def test_logs_of_kafka_are_complete(data_dir: Path, read: Callable[[Path], Problems]) -> None:
    assert [str(one) for one in read(data_dir) if one.rows_missing] == []


# ---- folders and files that cannot be read ---------------------------------------------------


def _is_unreadable(problems: Problems, path: Path) -> bool:
    found = {one.path: one for one in problems}
    return str(path) in found and found[str(path)].symbol == "UNREADABLE"


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Refuse to list a folder, also to root."""

    def refuse(folder: Path) -> None:
        list_folder = folders.files_in

        def refused(path: Path) -> FilePins:
            if path == folder:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
            return list_folder(path)

        monkeypatch.setattr(folders, "files_in", refused)

    return refuse


def test_a_folder_that_may_not_be_listed_hides_no_other(
    log: list[Path],
    tmp_path: Path,
    read: Callable[[Path], Problems],
    refuse: Callable[[Path], None],
) -> None:
    other = write_log(tmp_path / "orders-1")[0].parent
    refuse(other)
    problems = read(tmp_path)
    assert _is_unreadable(problems, other)
    (one,) = {(one.topic, one.partition, one.rows_missing) for one in problems}
    assert one == ("orders", 1, True)
    with pytest.raises(PermissionError):
        ks.count_records(other)


def test_a_link_that_leads_nowhere_hides_no_other_log(
    log: list[Path], tmp_path: Path, read: Callable[[Path], Problems]
) -> None:
    link = tmp_path / "orders-1"
    link.symlink_to("nowhere")
    (tmp_path / "not-of-kafka").symlink_to("nowhere")
    problems = read(tmp_path)
    assert _is_unreadable(problems, link)
    assert len({one.path for one in problems}) == 1


def test_counts_have_a_row_of_a_folder_that_was_not_read(log: list[Path], tmp_path: Path) -> None:
    (tmp_path / "orders-1").symlink_to("nowhere")
    counts = ks.count_records(tmp_path)
    assert counts["partition"] == [0, 1]
    assert counts["records"].tolist() == [SEGMENTS * STEP, 0]
    assert counts.is_exact.tolist() == [True, False]


def test_everything_on_disk_without_a_folder(log: list[Path], tmp_path: Path) -> None:
    (tmp_path / "orders-1").symlink_to("nowhere")
    table = ks.scan_log_dir(tmp_path, include="all")
    assert sum(len(chunk) for chunk in table) == SEGMENTS * BATCHES
    assert _is_unreadable(table.problems, tmp_path / "orders-1")


def test_an_audit_reports_a_folder_and_goes_on(
    log: list[Path], tmp_path: Path, refuse: Callable[[Path], None]
) -> None:
    other = write_log(tmp_path / "orders-1")[0].parent
    (tmp_path / "orders-2").symlink_to("nowhere")
    refuse(other)
    done = ks.audit(tmp_path)
    assert done.batches == SEGMENTS * BATCHES
    unread = [one for one in done.findings if one.symbol == "UNREADABLE"]
    assert [one.path for one in unread] == [str(other), str(tmp_path / "orders-2")]


def test_a_salvage_reports_a_folder_and_goes_on(log: list[Path], tmp_path: Path) -> None:
    (tmp_path / "orders-1").symlink_to("nowhere")
    first, second = ks.salvage(tmp_path).partitions
    assert first.error is None
    assert isinstance(second.error, FileNotFoundError)


def test_objects_of_a_tier_behind_links(
    log: list[Path], tmp_path: Path, read: Callable[[object], Problems]
) -> None:
    folder = tmp_path / "tier" / f"orders-0-{'A' * 22}"
    folder.mkdir(parents=True)
    objects = [folder / f"{path.stem}-{'B' * 22}.log" for path in log]
    for path, target in zip(log, objects, strict=True):
        target.symlink_to(path)
    assert not read(ks.tiered.open_tiered(tmp_path / "tier"))
    log[2].unlink()
    found = read(ks.tiered.open_tiered(tmp_path / "tier"))
    assert {(one.symbol, one.rows_missing) for one in found} == {("UNREADABLE", True)}
    log[1].unlink()
    objects[1].unlink()
    found = read(ks.tiered.open_tiered(tmp_path / "tier"))
    assert {one.symbol for one in found} == {"OFFSET_GAP", "UNREADABLE"}


def test_a_folder_of_a_tier_that_may_not_be_listed(
    log: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tier" / f"orders-0-{'A' * 22}"
    folder.mkdir(parents=True)
    for path in log:
        path.rename(folder / f"{path.stem}-{'B' * 22}.log")
    other = folder.with_name(f"orders-1-{'A' * 22}")
    other.mkdir()
    scandir = os.scandir

    def refused(path: object) -> object:
        if str(path) == str(other):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(other))
        return scandir(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", refused)
    tier = ks.tiered.open_tiered(tmp_path / "tier")
    (problem,) = tier.problems
    assert problem.key == f"{other.name}/"
    assert ks.count_records(tier)["records"].tolist() == [SEGMENTS * STEP]


# ---- records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", DAMAGE)
def test_records_of_a_damaged_log_raise_or_are_named_as_incomplete(
    log: list[Path], damage: str
) -> None:
    spoil, symbol = DAMAGE[damage]
    spoil(log[1])
    folder = log[0].parent
    found = list[ks.records.RecordTable]()
    with pytest.raises(ks.CorruptLogError) as raised:
        ks.read_records(folder)
    if symbol is not None:
        assert isinstance(raised.value, ks.IncompleteLogError)
        assert raised.value.symbol == symbol
    with pytest.raises(ks.CorruptLogError):
        found += ks.iter_records(folder)
    with pytest.raises(ks.CorruptLogError):
        ks.read_records(folder, isolation="read_committed")
    table = ks.read_records(folder, on_corrupt="stop")
    counted = ks.count_records(folder)
    assert table["offset"][-1] == SEGMENTS * STEP - 1
    if damage != "another length":  # of which the records cannot be read, either
        assert len(table) == counted["records"][0]
        assert table.problems.rows() == counted.problems.rows()
    with pytest.warns(ks.tables.IncompleteTableWarning):
        table.to_pandas()
    *tables, last = ks.iter_records(folder, on_corrupt="stop")
    assert sum(map(len, tables)) == len(table)
    assert (len(last), last.problems.rows()) == (0, table.problems.rows())
    committed = ks.read_records(folder, on_corrupt="stop", isolation="read_committed")
    assert {one.symbol for one in committed.problems} == {one.symbol for one in table.problems}


def test_a_batch_whose_records_cannot_be_read(log: list[Path]) -> None:
    data = bytearray(log[1].read_bytes())
    data[4 * len(_batch(0)) + 61] = 0x7F  # the length of the first record
    log[1].write_bytes(data)
    folder = log[0].parent
    for path in (folder, log[1]):
        whole = SEGMENTS * STEP if path == folder else STEP
        for verify, symbol in ((False, "INVALID_RECORD"), (True, "CHECKSUM_MISMATCH")):
            with pytest.raises(ks.CorruptBatchError):
                ks.read_records(path, verify=verify)
            table = ks.read_records(path, verify=verify, on_corrupt="stop")
            (one,) = table.problems
            assert one.position == 4 * len(_batch(0))
            assert verify == (one.symbol == symbol) or not verify
            assert len(table) == whole - RECORDS
            *tables, last = ks.iter_records(path, verify=verify, on_corrupt="stop")
            assert sum(map(len, tables)) == whole - RECORDS
            assert last.problems.rows() == table.problems.rows()
    errors = list[ks.CorruptBatchError]()
    *tables, last = ks.iter_records(folder, on_damage=errors.append)
    assert len(errors) == len(last.problems) == 1


def test_a_damaged_source_by_itself(log: list[Path]) -> None:
    data = bytearray(log[1].read_bytes())
    data[4 * len(_batch(0)) + 8] = 0x80
    table = ks.read_records(bytes(data), on_corrupt="stop")
    assert len(table) == 4 * RECORDS
    (one,) = table.problems
    assert one.position == 4 * len(_batch(0))
    assert one.rows_missing
    with pytest.raises(ValueError, match="on_corrupt"):
        ks.read_records(bytes(data), on_corrupt="skip")  # type: ignore[arg-type]


def test_nothing_is_stable_from_a_damaged_marker_on(tmp_path: Path) -> None:
    partition = HealthyPartition(tmp_path / "orders-0").write()
    data = bytearray(partition.log(1).read_bytes())
    scan = ks.scan_batches(partition.log(1))
    (first, *_) = scan.batches[ks.batches.is_control(scan.batches)]
    data[int(first["position"]) + 70] ^= 1
    partition.log(1).write_bytes(data)
    with pytest.raises(ks.ChecksumMismatchError):
        ks.logs.read_committed_view(partition.folder)
    view = ks.logs.read_committed_view(partition.folder, on_corrupt="stop")
    assert view.last_stable_offset <= first["base_offset"]
    assert any(one.rows_missing for one in view.problems)


def test_a_query_of_records(log: list[Path]) -> None:
    pytest.importorskip("polars")
    from polars.exceptions import ComputeError

    _cut(log[1])
    folder = log[0].parent
    with pytest.raises((ks.IncompleteLogError, ComputeError), match="CUT_SEGMENT"):
        ks.polars.scan_records(folder).collect()
    frame = ks.polars.scan_records(folder, on_corrupt="stop")
    with pytest.warns(ks.tables.IncompleteTableWarning, match="CUT_SEGMENT"):
        assert len(frame.collect()) == ks.count_records(folder)["records"][0]


def test_queries_verify_what_they_read(log: list[Path]) -> None:
    pytest.importorskip("polars")
    from polars.exceptions import ComputeError

    data = bytearray(log[1].read_bytes())
    data[-3] ^= 1
    log[1].write_bytes(data)
    folder = log[0].parent
    with pytest.raises((ks.ChecksumMismatchError, ComputeError), match="CHECKSUM_MISMATCH"):
        ks.polars.scan_records(folder).collect()
    assert len(ks.polars.scan_records(folder, verify=False).collect()) == SEGMENTS * STEP


@pytest.mark.parametrize("trust_index", [False, True])
def test_lookups_do_not_pass_over_the_end_of_a_cut_segment(
    log: list[Path], trust_index: bool
) -> None:
    for path in log:
        rows = ks.scan_batches(path).batches
        entries = ks.build_offset_index(rows, base_offset=int(path.stem), interval_bytes=700)
        ks.write_index(path.with_suffix(".index"), entries)
    log[1].write_bytes(log[1].read_bytes()[:-7])
    folder, late = log[0].parent, SEGMENTS * STEP - 1
    before = ks.lookup_offset(folder, STEP, trust_index=trust_index)
    assert before is not None
    assert before.base_offset == STEP
    after = ks.lookup_offset(folder, late, trust_index=trust_index)
    assert after is not None
    assert after.last_offset == late
    with pytest.raises(ks.IncompleteLogError) as raised:
        ks.lookup_offset(folder, 2 * STEP - 1, trust_index=trust_index)
    assert raised.value.symbol == "CUT_SEGMENT"
    with pytest.raises(ks.IncompleteLogError):
        ks.lookup_timestamp(folder, 2**50)


@pytest.mark.parametrize("kind", ["count", "deep", "transactions"])
def test_damage_that_two_readers_see_is_one_problem(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = bytearray(b"".join(plain_batch(3 * number, 3, 50) for number in range(4)))
    position = len(log) // 4 * 2
    log[position + 8 : position + 12] = (5).to_bytes(4, "big")
    (folder / f"{0:020}.log").write_bytes(log)
    read: dict[str, Callable[[], ks.tables.AnyTable]] = {
        "count": lambda: ks.count_records(folder),
        "deep": lambda: ks.count_records(folder, deep=True),
        "transactions": lambda: ks.read_transactions(folder),
    }
    (found,) = read[kind]().problems
    assert (found.symbol, found.position, found.offset) == ("BAD_LENGTH", position, 6)


def test_numbers_of_missing_offsets(tmp_path: Path) -> None:
    """Base offsets are in no checksum: any may stand there."""
    folder, batch = tmp_path / "t-0", plain_batch(0, 3, 50)
    folder.mkdir()

    def gap_of(*bases: int, start: int | None = None) -> tuple[int | None, int | None]:
        log = b"".join(base.to_bytes(8, "big") + batch[8:] for base in bases)
        (folder / f"{0:020}.log").write_bytes(log)
        found = ks.read_records(folder, on_corrupt="stop", log_start_offset=start).problems
        assert found.to_arrow().num_rows == len(found)
        gap = next(one for one in found if one.symbol == "OFFSET_GAP")
        return gap.offset, gap.count

    assert gap_of(0, 10, 13, 30) == (3, 7 + 14)
    assert gap_of(0, 10, 13, 30, start=5) == (5, 5 + 14)
    assert gap_of(0, 2**62, 2**63 - 4) == (3, 2**63 - 4 - 6)
    assert gap_of(0, 2**62, 5, 2**62, 8) == (3, None)
    assert gap_of(0, 10**6, 3, 6) == (3, None)
