"""Salvage after damage at every kind of position, alone and combined."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.format.errors import LogDirInUseError
from kafkascan.io.atomic_files import AtomicFile
from tests.support.logs import WrittenLog
from tests.support.paths import GOLDEN
from tests.support.records import RecordV2, batch_of, log_without_its_marker
from tests.support.segments import V2_FIELDS, batch_v2, message_v0, message_v1

UNCOVERED = ("base_offset", "batch_length", "partition_leader_epoch", "magic")


def written(seed: int = 1, count: int = 40) -> WrittenLog:
    """A log whose transactional producers write only transactions, as Kafka's clients do."""
    log = WrittenLog(random.Random(seed))
    for step in range(count):
        if step % 10 == 9:
            log.leader_epoch += 1
        if step % 7 == 6:
            log.end(1, log.random.choice([0, 1]))
        elif step % 3 == 0:
            log.data(1, transactional=True)
        else:
            log.data(log.random.choice([-1, 2, 3]))
    return log


def partition(tmp_path: Path, log: WrittenLog, data: bytes) -> Path:
    folder = tmp_path / "topic-0"
    folder.mkdir()
    (folder / f"{log.base_offset:020}.log").write_bytes(data)
    epochs = [ks.broker_state.LeaderEpoch(*one) for one in log.epochs]
    ks.broker_state.write_leader_epochs(folder / "leader-epoch-checkpoint", epochs)
    return folder


def salvaged(
    tmp_path: Path, log: WrittenLog, data: bytes
) -> tuple[bytes, ks.recovery.SegmentSalvage]:
    folder = partition(tmp_path, log, data)
    before = (folder / f"{log.base_offset:020}.log").read_bytes()
    result = ks.salvage(folder, tmp_path / "out")
    (one,) = result.partitions
    assert one.error is None
    assert one.recovery is not None
    assert one.recovery.is_in_order
    path = tmp_path / "out" / f"{log.base_offset:020}.log"
    scan = ks.scan_batches(path)
    assert scan.end is ks.ScanEnd.CLEAN
    assert ks.verify_crcs(path, scan.batches).all()
    for kind in ("index", "timeindex"):
        assert ks.check_index(path.with_suffix(f".{kind}"), scan.batches) == []
    assert (folder / path.name).read_bytes() == before
    (segment,) = one.segments
    assert segment.kept_bytes == path.stat().st_size
    assert json.loads(result.to_json())["lost_bytes"] == result.lost_bytes
    return path.read_bytes(), segment


@pytest.mark.parametrize("field", V2_FIELDS)
@pytest.mark.parametrize("row", [0, 17, 38])
def test_every_field_of_a_header(field: str, row: int, tmp_path: Path) -> None:
    log = written()
    parts = [bytearray(part) for part in log.batches]
    at, code = V2_FIELDS[field]
    (value,) = struct.unpack_from(">" + code, parts[row], at)
    struct.pack_into(">" + code, parts[row], at, value ^ 0x40)
    data, segment = salvaged(tmp_path, log, b"".join(parts))
    if field in UNCOVERED:
        assert data == log.log
        (repair,) = segment.repairs
        assert (repair.field, repair.new) == (field, value)
        assert segment.losses == []
    else:
        assert data == b"".join(log.batches[:row] + log.batches[row + 1 :])
        (loss,) = segment.losses
        assert loss.symbol == "CHECKSUM_MISMATCH"
        assert (loss.position, loss.size) == (len(b"".join(log.batches[:row])), len(parts[row]))
        # The offset range is exact: it is bounded by the neighbouring batches.
        first, after = log.starts[row], log.starts[row + 1]
        assert (loss.first_offset, loss.last_offset) == (first, after - 1)


def test_a_leader_epoch_beside_damage_is_repaired_without_certainty(tmp_path: Path) -> None:
    log = written()
    parts = [bytearray(part) for part in log.batches]
    parts[20][V2_FIELDS["partition_leader_epoch"][0] + 3] ^= 0x40
    parts[21][-1] ^= 1
    data, segment = salvaged(tmp_path, log, b"".join(parts))
    assert data == b"".join(log.batches[:21] + log.batches[22:])
    (repair,) = segment.repairs
    assert (repair.field, repair.is_certain) == ("partition_leader_epoch", False)


@pytest.mark.parametrize("uncovered", [*itertools.combinations(UNCOVERED[:2] + UNCOVERED[3:], 2)])
def test_several_fields_of_one_header(uncovered: tuple[str, str], tmp_path: Path) -> None:
    log = written()
    parts = [bytearray(part) for part in log.batches]
    for field in uncovered:
        at, _ = V2_FIELDS[field]
        parts[20][at] ^= 0x11
    data, segment = salvaged(tmp_path, log, b"".join(parts))
    assert data == log.log
    assert {one.field for one in segment.repairs} == set(uncovered)


def test_several_damaged_batches(tmp_path: Path) -> None:
    log = written(count=60)
    parts = [bytearray(part) for part in log.batches]
    parts[5][-1] ^= 1
    parts[6][8:12] = b"\xff\xff\xff\xff"
    parts[20][16] = 9
    parts[30] = bytearray(len(parts[30]))
    parts[31][30:] = bytes(len(parts[31]) - 30)
    parts[45][0] ^= 0x01
    data, segment = salvaged(tmp_path, log, b"".join(parts))
    gone = {5, 30, 31}
    assert data == b"".join(part for row, part in enumerate(log.batches) if row not in gone)
    assert len(segment.repairs) == 3


def test_torn_tails_and_zero_tails(tmp_path: Path) -> None:
    log = written()
    cut = log.log[:-5]
    data, segment = salvaged(tmp_path, log, cut)
    assert data == b"".join(log.batches[:-1])
    (loss,) = segment.losses
    assert (loss.symbol, loss.last_offset) == ("TORN_TAIL", None)
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "topic-0")
    data, segment = salvaged(tmp_path, log, log.log + bytes(10_000))
    assert (data, segment.losses, segment.end) == (log.log, [], ks.ScanEnd.ZERO_TAIL)


def test_pages_of_zeros(tmp_path: Path) -> None:
    log = WrittenLog(random.Random(3))
    for _ in range(60):
        log._add(batch_of([RecordV2(value=b"v" * 700)], **log._place()), 1)
    data = bytearray(log.log)
    data[8192:16384] = bytes(8192)
    kept, segment = salvaged(tmp_path, log, bytes(data))
    starts = np.cumsum([0, *map(len, log.batches)])
    whole = [
        part
        for part, start, stop in zip(log.batches, starts[:-1], starts[1:], strict=True)
        if stop <= 8192 or start >= 16384
    ]
    assert kept == b"".join(whole)
    assert sum(loss.zero_bytes for loss in segment.losses) >= 8192 - 512
    assert segment.lost_bytes == len(log.log) - len(kept)


def test_old_messages(tmp_path: Path) -> None:
    log = WrittenLog(random.Random(3))
    for offset in range(20):
        message = message_v0 if offset < 10 else message_v1
        log._add(message(b"key", b"value", offset=offset), 1)
    parts = [bytearray(part) for part in log.batches]
    parts[4][11] ^= 0x10  # its size
    parts[14][3] ^= 0x10  # its offset
    parts[8][-1] ^= 1
    data, segment = salvaged(tmp_path, log, b"".join(parts))
    assert data == b"".join(log.batches[:8] + log.batches[9:])
    assert [one.field for one in segment.repairs] == ["batch_length", "base_offset"]


# ---- copies of batches in values -------------------------------------------------------------


def nested_log(value: bytes, *, epoch: int = 0) -> list[bytes]:
    parts = [
        batch_of([RecordV2(value=b"outer")], base_offset=row, partition_leader_epoch=epoch)
        for row in range(20)
    ]
    parts[10] = batch_of(
        [RecordV2(value=value), RecordV2(offset_delta=1), RecordV2(offset_delta=2)],
        base_offset=10, partition_leader_epoch=epoch,
    )  # fmt: skip
    return parts[:11] + [
        batch_of([RecordV2()], base_offset=row, partition_leader_epoch=epoch)
        for row in range(13, 23)
    ]


def salvage_bytes(
    tmp_path: Path, parts: list[bytearray], **options: str
) -> ks.recovery.SegmentSalvage:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(parts))
    ((segment,),) = [one.segments for one in ks.salvage(path, **options).partitions]
    return segment


@pytest.mark.parametrize("first", [0, 10, 11, 12, 13, 10**6])
def test_a_batch_within_a_value_is_not_kept(first: int, tmp_path: Path) -> None:
    inner = batch_v2(b"inner", base_offset=first)
    parts = [bytearray(part) for part in nested_log(inner)]
    assert salvage_bytes(tmp_path, parts).batches == 21
    parts[10][63] ^= 1  # the record around it; the batch length is intact
    segment = salvage_bytes(tmp_path, parts)
    assert segment.batches == 20
    assert [loss.symbol for loss in segment.losses] == ["CHECKSUM_MISMATCH"]


def test_a_nested_batch_whose_offset_fits_is_doubtful(tmp_path: Path) -> None:
    """The offset fits into the lost range: the batch is kept and marked, or dropped."""
    inner = batch_v2(b"inner", base_offset=12)
    parts = [bytearray(part) for part in nested_log(inner)]
    parts[10][0:16] = b"\x7f" * 16  # offset, length, epoch
    parts[10][-3] ^= 1
    segment = salvage_bytes(tmp_path, parts)
    assert segment.batches == 21
    assert [piece.is_doubtful for piece in segment.pieces] == [False, True, True]
    segment = salvage_bytes(tmp_path, parts, doubtful="drop")
    assert segment.batches == 10
    assert "NESTED" in {loss.symbol for loss in segment.losses}
    with pytest.raises(ValueError, match="doubtful"):
        ks.salvage(tmp_path, doubtful="maybe")  # type: ignore[arg-type]


def test_repairs_of_dropped_batches_are_dropped(tmp_path: Path) -> None:
    """The second of three nested batches has a damaged magic byte, and then all are dropped."""
    inner = [bytearray(batch_v2(b"inner", base_offset=offset)) for offset in (12, 13, 14)]
    inner[1][16] = 0
    outer = [RecordV2(value=b"".join(inner)), *(RecordV2(offset_delta=one) for one in range(1, 10))]
    parts = [bytearray(batch_of([RecordV2()], base_offset=row)) for row in range(10)]
    parts.append(bytearray(batch_of(outer, base_offset=10)))
    parts += [bytearray(batch_of([RecordV2()], base_offset=row)) for row in range(20, 25)]
    parts[10][0:16] = b"\x7f" * 16
    assert salvage_bytes(tmp_path, parts).batches == 18
    folder = tmp_path / "topic-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(b"".join(parts))
    (done,) = ks.salvage(folder, tmp_path / "out", doubtful="drop").partitions
    (segment,) = done.segments
    assert (done.error, segment.batches, segment.repairs) == (None, 10, [])


@pytest.mark.parametrize("fields", [{"partition_leader_epoch": 3}, {"partition_leader_epoch": -1}])
def test_a_nested_batch_with_another_leader_epoch_is_dropped(
    fields: dict[str, int], tmp_path: Path
) -> None:
    inner = batch_v2(b"inner", base_offset=12, **fields)
    parts = [bytearray(part) for part in nested_log(inner, epoch=5)]
    parts[10][0:16] = b"\x7f" * 16
    parts[10][-3] ^= 1
    segment = salvage_bytes(tmp_path, parts)
    assert segment.batches == 20
    assert "NESTED" in {loss.symbol for loss in segment.losses}


def test_a_nested_batch_with_another_sequence_is_dropped(tmp_path: Path) -> None:
    def produced(row: int, sequence: int) -> bytes:
        return batch_of([RecordV2()], base_offset=row, producer_id=7, producer_epoch=0,
                        base_sequence=sequence)  # fmt: skip

    inner = batch_v2(b"inner", base_offset=12, producer_id=7, producer_epoch=0, base_sequence=900)
    outer = nested_log(inner)[10]
    parts = [bytearray(produced(row, 100 + row)) for row in range(10)] + [bytearray(outer)]
    parts += [bytearray(produced(row, 100 + row)) for row in range(13, 23)]
    parts[10][0:16] = b"\x7f" * 16
    parts[10][-3] ^= 1
    assert salvage_bytes(tmp_path, parts).batches == 20


# ---- folders ---------------------------------------------------------------------------------


def test_offsets_of_the_next_segment_are_damage(tmp_path: Path) -> None:
    """A damaged offset that ascends, but is in the range of the next segment."""
    log = written(count=60)
    folder = tmp_path / "topic-0"
    folder.mkdir()
    for start, stop in [(0, 20), (20, 40), (40, None)]:
        base_offset, data = log.segment(start, stop)
        (folder / f"{base_offset:020}.log").write_bytes(data)
    path = folder / f"{log.starts[20]:020}.log"
    data = bytearray(path.read_bytes())
    last = len(data) - len(log.batches[39])
    data[last + 5] ^= 0x20
    path.write_bytes(data)
    ks.salvage(folder, tmp_path / "out")
    copied = [one.read_bytes() for one in sorted((tmp_path / "out").glob("*.log"))]
    assert b"".join(copied) == log.log


def test_a_data_dir_in_a_tar(tmp_path: Path) -> None:
    log = written()
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "meta.properties").write_text("version=1\n")
    for name in ("a-0", "b-1"):
        (data_dir / name).mkdir()
        (data_dir / name / "partition.metadata").write_text("version: 0\ntopic_id: x\n")
        (data_dir / name / f"{0:020}.log").write_bytes(log.log)
    (data_dir / "b-1" / f"{7:020}.log.deleted").write_bytes(b"")
    with tarfile.open(tmp_path / "data.tar", "w") as tar:
        tar.add(data_dir, arcname="data")
    for number, path in enumerate([data_dir, tmp_path / "data.tar"]):
        out = tmp_path / f"out-{number}"
        result = ks.salvage(path, out)
        assert result.lost_bytes == 0
        assert [one.left_out for one in result.partitions] == [[], [f"{7:020}.log.deleted"]]
        for name in ("a-0", "b-1"):
            assert (out / name / f"{0:020}.log").read_bytes() == log.log
            assert (out / name / "partition.metadata").exists()
            assert (out / name / f"{0:020}.index").exists()
        assert (out / "meta.properties").exists()


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    log = written()
    folder = partition(tmp_path, log, log.log)
    with pytest.raises(FileExistsError):
        ks.salvage(folder, folder)
    with pytest.raises(FileNotFoundError):
        ks.salvage(tmp_path / "nowhere")


def test_intact_logs_lose_nothing() -> None:
    seen = 0
    for data in (GOLDEN / "kafka-4.4.0" / "data", GOLDEN / "kafka-2.8.2" / "data"):
        for partition in ks.salvage(data).partitions:
            for segment in partition.segments:
                seen += segment.batches
                assert segment.losses == []
                assert segment.repairs == []
                assert segment.kept_bytes == segment.size
    assert seen > 400


def _three_segments(folder: Path) -> list[Path]:
    folder.mkdir(parents=True)
    log = written()
    cuts = [0, 10, 30, None]
    paths = []
    for first, last in itertools.pairwise(cuts):
        base_offset, data = log.segment(first, last)
        paths.append(folder / f"{base_offset:020}.log")
        paths[-1].write_bytes(data)
    return paths


def _fail_at_the_second(paths: list[Path], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the copy of the second segment of topic-0 fail with an error."""
    whole = AtomicFile.__exit__

    def fail(self: AtomicFile, *why: object) -> None:
        if "topic-0" in str(self.folder) and self.stream.tell() == paths[1].stat().st_size:
            self.discard()
            raise OSError(code, os.strerror(code))
        whole(self, *why)  # type: ignore[arg-type]

    monkeypatch.setattr(AtomicFile, "__exit__", fail)


@pytest.mark.parametrize("is_data_dir", [False, True])
def test_a_failing_disk_leaves_an_incomplete_copy_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_data_dir: bool
) -> None:
    data = tmp_path / "data"
    paths = _three_segments(data / "topic-0")
    _three_segments(data / "other-0")
    _fail_at_the_second(paths, errno.EIO, monkeypatch)
    source, target = (data, "out") if is_data_dir else (data / "topic-0", "out/topic-0")
    done = ks.salvage(source, tmp_path / target)
    broken = next(one for one in done.partitions if one.topic == "topic")
    assert isinstance(broken.error, OSError)
    assert broken.recovery is None
    assert not done.is_marked_clean
    second = broken.segments[1]
    assert (second.batches, second.kept_bytes, second.records) == (0, 0, 0)
    assert broken.lost_bytes == second.lost_bytes == paths[1].stat().st_size
    assert [loss.symbol for loss in second.losses] == ["NOT_COPIED"]
    # Beside the copied data dir: a broker does not start if its data dir has unknown folders.
    aside = tmp_path / ("out.incomplete/topic-0" if is_data_dir else "out/topic-0.incomplete")
    assert broken.destination == aside
    assert len(list(aside.glob("*.log"))) == 2
    assert not list(aside.glob("*.index"))
    assert not (tmp_path / "out" / "topic-0").exists()
    if is_data_dir:
        other = next(one for one in done.partitions if one.topic == "other")
        assert other.error is None
        assert list((tmp_path / "out" / "other-0").glob("*.index"))
    assert json.loads(done.to_json())["lost_bytes"] == broken.lost_bytes


@pytest.mark.parametrize("is_data_dir", [False, True])
def test_a_full_disk_gets_its_space_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_data_dir: bool
) -> None:
    data = tmp_path / "data"
    paths = _three_segments(data / "topic-0")
    _three_segments(data / "other-0")
    source, target = (data, "out") if is_data_dir else (data / "topic-0", "out/topic-0")
    _fail_at_the_second(paths, errno.ENOSPC, monkeypatch)
    done = ks.salvage(source, tmp_path / target)
    broken = next(one for one in done.partitions if one.topic == "topic")
    assert isinstance(broken.error, OSError)
    assert broken.destination is None
    assert not done.is_marked_clean
    assert not list(tmp_path.rglob("*.incomplete"))
    assert not list(tmp_path.rglob("*-delete"))
    left = {one.name for one in (tmp_path / "out").iterdir() if one.is_dir()}
    assert left == ({"other-0"} if is_data_dir else set())


def test_a_later_run_names_what_earlier_ones_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It also sets another incomplete copy aside, and leaves the first one as it is."""
    paths = _three_segments(tmp_path / "data" / "topic-0")
    copy, incomplete = tmp_path / "topic-0", tmp_path / "topic-0.incomplete"
    _fail_at_the_second(paths, errno.EIO, monkeypatch)
    runs = [ks.salvage(paths[0].parent, copy) for _ in range(2)]
    places = [one.partitions[0].destination for one in runs]
    assert places == [incomplete, tmp_path / "topic-0.incomplete2"]
    monkeypatch.undo()
    notes = ks.salvage(paths[0].parent, copy).problems
    assert [(one.symbol, one.path) for one in notes] == [("LEFTOVER", str(one)) for one in places]
    assert all("Delete the directory" in one.message for one in notes)


def test_a_log_that_no_broker_loads_is_not_in_the_copied_data_dir(tmp_path: Path) -> None:
    for name, data in [("bad-0", log_without_its_marker()), ("good-0", written().log)]:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / f"{0:020}.log").write_bytes(data)
    done = ks.salvage(tmp_path / "data", tmp_path / "out")
    bad, good = sorted(done.partitions, key=lambda one: one.path.name)
    assert bad.error is not None
    assert good.error is None
    assert sorted(one.name for one in (tmp_path / "out").iterdir() if one.is_dir()) == ["good-0"]
    assert bad.destination == tmp_path / "out.incomplete" / "bad-0"
    assert (bad.destination / f"{0:020}.log").read_bytes() == log_without_its_marker()
    assert not done.is_marked_clean


def test_a_log_that_no_broker_loads_is_not_in_the_data_dir_of_a_broker(tmp_path: Path) -> None:
    data_dir = tmp_path / "broker"
    data_dir.mkdir()
    (data_dir / "meta.properties").write_text("version=1\n")
    path = tmp_path / "topic-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(log_without_its_marker())
    (one,) = ks.salvage(path.parent, data_dir / "topic-0").partitions
    assert one.destination == tmp_path / "broker.incomplete" / "topic-0"
    assert one.destination.exists()
    assert {one.name for one in data_dir.iterdir()} <= {"meta.properties", ".lock"}


def test_a_data_dir_that_a_broker_uses_is_refused(tmp_path: Path) -> None:
    data_dir = tmp_path / "broker"
    data_dir.mkdir()
    (data_dir / "meta.properties").write_text("version=1\n")
    log = written()
    folder = partition(tmp_path, log, log.log)
    holder = (
        "import fcntl, sys\n"
        f"file = open({str(data_dir / '.lock')!r}, 'w')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirInUseError):
            ks.salvage(folder, data_dir / "topic-0")
        assert {one.name for one in data_dir.iterdir()} == {"meta.properties", ".lock"}
        broker.communicate(b"")
    ks.salvage(folder, data_dir / "topic-0")
    assert (data_dir / "topic-0" / f"{0:020}.log").read_bytes() == log.log


def test_a_killed_salvage_leaves_no_destination(tmp_path: Path) -> None:
    """The next run removes what the killed one left, under a name that brokers delete."""
    log = written()
    folder = partition(tmp_path, log, log.log)
    (tmp_path / "to").mkdir()
    program = (
        "import os, kafkascan as ks\n"
        "from kafkascan.recovery.salvaging import log_salvage\n"
        "log_salvage.recover = lambda *args, **options: os._exit(9)\n"
        f"ks.salvage({str(folder)!r}, {str(tmp_path / 'to' / 'topic-0')!r})\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    (left,) = (tmp_path / "to").iterdir()
    assert left.name.endswith("-delete")
    (note,) = ks.salvage(folder, tmp_path / "to" / "topic-0").problems
    assert (note.symbol, note.path) == ("LEFTOVER", str(left))
    assert "was removed" in note.message
    assert [one.name for one in (tmp_path / "to").iterdir()] == ["topic-0"]
