"""The verbs that write files, each with a data directory to work on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import kafkascan as ks
from kafkascan.recovery import restore
from tests.support import partitions
from tests.support.command_line import run
from tests.support.logs import WrittenLog
from tests.support.partitions import HealthyPartition
from tests.support.records import RecordV2, batch_of
from tests.support.tiers import put_local

NOW = 1_714_000_100_000
_NAME = "orders-0"


class RefusedError(Exception):
    """A verb that says by its exit code, or its result, that it did not do all."""


@dataclass(frozen=True)
class Verb:
    """
    A verb.

    Attributes
    ----------
    act : callable
        Runs it on a folder with ``data`` and ``tier``; what it did not do is an exception.
    is_in_place : bool
        Whether it changes ``data``. Otherwise it writes to ``out``.
    drops : bool
        Whether it removes batches, because it is asked to.
    rewrites : bool
        Whether it replaces logs by others.
    goes_on : bool
        Whether it writes an output without what it cannot read.
    """

    act: Callable[[Path], None]
    is_in_place: bool = False
    drops: bool = False
    rewrites: bool = False
    goes_on: bool = False


def _recover(root: Path, *, truncate: bool = True, backup: bool = True) -> None:
    done = ks.recover(
        root / "data", write=True, truncate=truncate, backup=backup, now_ms=NOW, threads=1
    )
    failed = [one.error for one in done.partitions if one.error is not None]
    if failed:
        raise failed[0]
    if truncate and not done.is_in_order:
        raise RefusedError("changes are left")


def _salvage(root: Path) -> None:
    done = ks.salvage(root / "data", root / "out", threads=1)
    failed = [one.error for one in done.partitions if one.error is not None]
    if failed:
        raise failed[0]


def _restore(root: Path) -> None:
    done = restore(root / "tier", root / "out", threads=1)
    failed = [one.error for one in done.partitions if one.error is not None]
    if failed:
        raise failed[0]


def _command(*arguments: str) -> Callable[[Path], None]:
    def act(root: Path) -> None:
        done = run(*(one.format(root=root) for one in arguments))
        if done.returncode != 0:
            raise RefusedError(f"exit code {done.returncode}: {done.stderr}")

    return act


def _write_segments(root: Path) -> None:
    logs = sorted((root / "data" / _NAME).glob("*.log"))
    with ks.SegmentWriter(root / "out" / _NAME, segment_bytes=2000, interval_bytes=300) as writer:
        for log in logs:
            writer.append(log)


def _rewritten(rewrite: Callable[..., object], **options: object) -> dict[str, Verb]:
    """Return a rewrite in place, of one file in place, and to a target."""

    def in_place(root: Path) -> None:
        rewrite(root / "data" / _NAME, in_place=True, **options)

    def one_file(root: Path) -> None:
        log = min((root / "data" / _NAME).glob("*.log"))
        rewrite(log, in_place=True, **options)

    def to_target(root: Path) -> None:
        rewrite(root / "data" / _NAME, root / "out" / _NAME, **options)

    name = rewrite.__name__.removesuffix("_log")
    drops = name == "scrub"
    return {
        f"{name} in place": Verb(in_place, is_in_place=True, drops=drops, rewrites=True),
        f"{name} a file in place": Verb(one_file, is_in_place=True, drops=drops, rewrites=True),
        name: Verb(to_target),
    }


VERBS: dict[str, Verb] = {
    "recover": Verb(_recover, is_in_place=True),
    "recover without backups": Verb(
        lambda root: _recover(root, backup=False), is_in_place=True, drops=True
    ),
    "recover without truncation": Verb(
        lambda root: _recover(root, truncate=False), is_in_place=True
    ),
    "salvage": Verb(_salvage, goes_on=True),
    "restore": Verb(_restore),
    **_rewritten(ks.convert_log, compression_type="lz4", threads=1),
    **_rewritten(ks.restamp_log, partition_leader_epoch=9),
    **_rewritten(ks.scrub_log, keep=ks.rewrite.without_offsets(2, 9), threads=1),
    "index build": Verb(_command("index", "build", "{root}/data", "--write"), is_in_place=True),
    "index build elsewhere": Verb(
        _command("index", "build", "{root}/data", "--output", "{root}/out")
    ),
    "records to Parquet": Verb(
        _command("records", "{root}/data", "--output", "{root}/out/records.parquet"),
        goes_on=True,
    ),
    "records to JSON lines": Verb(
        _command("records", "{root}/data", "--output", "{root}/out/records.jsonl"),
        goes_on=True,
    ),
    "SegmentWriter": Verb(_write_segments),
}


# ---- the logs --------------------------------------------------------------------------------


def build(root: Path, dice: random.Random) -> None:
    """Write a data directory as a broker leaves it, and some of its damage; and remote storage."""
    data = root / "data"
    with mock.patch.object(partitions, "NOW", NOW):
        one = HealthyPartition(data / _NAME, segments=dice.choice((2, 3))).write()
    other = WrittenLog(random.Random(dice.random())).write(12, [1, 2])
    _write_segments_of(other, data / "payments-1")
    if dice.random() < 0.2:
        _write_too_wide(data / "old-0")
    (data / "meta.properties").write_text("version=1\nnode.id=1\n")
    flushed = dice.choice((0, one.offset // 2, one.offset))
    ks.broker_state.write_offset_checkpoint(
        data / "recovery-point-offset-checkpoint", {("orders", 0): flushed}
    )
    (root / "out").mkdir()
    (root / "tier").mkdir()
    put_local(root / "tier", data / _NAME)
    for _ in range(dice.choice((0, 1, 1, 2))):
        _damage(data / dice.choice((_NAME, "payments-1")), dice)


def _write_segments_of(log: WrittenLog, folder: Path) -> None:
    folder.mkdir()
    middle = len(log.batches) // 2
    for base_offset, data in (log.segment(0, middle), log.segment(middle)):
        (folder / f"{base_offset:020}.log").write_bytes(data)


def _write_too_wide(folder: Path) -> None:
    """Write a segment as brokers before 1.1 did, which has to be split (KAFKA-6264)."""
    folder.mkdir()
    offsets = [*range(100, 110), *range(100 + 2**31, 110 + 2**31)]
    batches = [batch_of([RecordV2(value=bytes(200))], base_offset=offset) for offset in offsets]
    (folder / f"{100:020}.log").write_bytes(b"".join(batches))
    following = batch_of([RecordV2(value=b"v")], base_offset=offsets[-1] + 1)
    (folder / f"{offsets[-1] + 1:020}.log").write_bytes(following)
    for path in list(folder.glob("*.log")):
        path.with_suffix(".index").touch()


def _damage(folder: Path, dice: random.Random) -> None:
    """Damage a file as crashes do."""
    logs = sorted(folder.glob("*.log"))
    others = sorted(path for path in folder.iterdir() if path.suffix != ".log")
    path = dice.choice([logs[-1], dice.choice(logs), dice.choice(others or logs)])
    data = bytearray(path.read_bytes())
    match dice.choice(("cut", "zeros", "junk", "missing", "flip")):
        case "cut":
            del data[dice.randrange(len(data) + 1) :]
        case "zeros":
            data += bytes(dice.choice((1, 61, 700)))
        case "junk":
            data += dice.randbytes(dice.choice((7, 100)))
        case "missing" if path.suffix != ".log":
            path.unlink()
            return
        case _ if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
