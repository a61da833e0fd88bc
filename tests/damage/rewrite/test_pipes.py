"""FIFOs in place of the files of a partition: an error, never a wait for their other end."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkascan as ks
from tests.support.files import contents
from tests.support.paths import GOLDEN
from tests.support.waiting import HANG_SECONDS

_PARTITION = GOLDEN / "kafka-4.4.0/data/transactions-0"
_NAMES = [
    f"{5:020}.log", f"{5:020}.index", f"{5:020}.timeindex", f"{5:020}.txnindex",
    f"{5:020}.snapshot", f"{41:020}.snapshot", "leader-epoch-checkpoint", "partition.metadata",
]  # fmt: skip


def _convert(folder: Path, target: Path | None) -> object:
    return ks.convert_log(folder, target, in_place=target is None, compression_type="zstd")


def _restamp(folder: Path, target: Path | None) -> object:
    return ks.restamp_log(folder, target, in_place=target is None, partition_leader_epoch=7)


def _scrub(folder: Path, target: Path | None) -> object:
    keep = ks.rewrite.without_offsets(1, 12)
    return ks.scrub_log(folder, target, in_place=target is None, keep=keep)


def _refuse(
    rewrite: Callable[[Path, Path | None], object], folder: Path, target: Path | None
) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        rewrite(folder, target)


@pytest.mark.parametrize("rewrite", [_convert, _restamp, _scrub])
@pytest.mark.parametrize("is_in_place", [True, False])
def test_a_pipe_is_refused(
    rewrite: Callable[[Path, Path | None], object], is_in_place: bool, tmp_path: Path
) -> None:
    for name in _NAMES:
        data_dir = tmp_path / name
        folder = Path(shutil.copytree(_PARTITION, data_dir / "transactions-0"))
        (folder / name).unlink()
        os.mkfifo(folder / name)
        before = contents(data_dir)
        target = None if is_in_place else data_dir / "new-0"
        # A read that waits for a writer cannot be interrupted otherwise.
        process = multiprocessing.get_context("fork").Process(
            target=_refuse, args=(rewrite, folder, target)
        )
        process.start()
        process.join(HANG_SECONDS)
        process.kill()
        process.join()
        assert process.exitcode == 0, name
        assert contents(data_dir) == before
