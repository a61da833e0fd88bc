"""Dumps of the golden files, byte for byte as Kafka's tool printed them."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from kafkascan.dump_log import log_dump
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.format.errors import CorruptLogError
from tests.support.dump_decoders import options_for

_GOLDEN = Path(__file__).parent


def is_complete(dump: Path) -> bool:
    """Return whether the dumped file is kept, and the index that a time index needs."""
    file = dump.parents[2] / "data" / dump.parent.name / dump.stem
    return file.exists() and (file.suffix != ".timeindex" or file.with_suffix(".index").exists())


DUMPS = sorted(
    path
    for path in _GOLDEN.glob("*/dump/*/*.txt")
    if not path.name.endswith(".stderr.txt") and is_complete(path)
)


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: str(path.relative_to(_GOLDEN)))
def test_same_lines(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dump.parents[2]
    monkeypatch.chdir(data)
    out, err = io.BytesIO(), []
    file = f"data/{dump.parent.name}/{dump.stem}"
    complaints = dump.with_suffix(".stderr.txt")
    expected = complaints.read_text() if complaints.exists() else ""
    if expected.startswith("Exception"):
        with pytest.raises(CorruptLogError):
            dump_files([file], options_for(dump.parent.name), out.write, err.append)
        expected = ""
    else:
        dump_files([file], options_for(dump.parent.name), out.write, err.append)
    assert out.getvalue() == dump.read_bytes()
    assert "".join(err).replace(f"{data}/", "") == expected


def test_a_batch_of_another_magic_is_printed_as_one_of_magic_2(tmp_path: Path) -> None:
    file = "00000000000000000000.log"
    data = (_GOLDEN / "kafka-4.4.0" / "data" / "consumed-0" / file).read_bytes()
    dumped = []
    for magic in (2, 7):
        (tmp_path / file).write_bytes(data[:16] + bytes([magic]) + data[17:])
        out = io.BytesIO()
        dump_files([str(tmp_path / file)], options_for("consumed-0"), out.write, str)
        dumped.append(out.getvalue())
    assert dumped[1] == dumped[0].replace(b" magic: 2 ", b" magic: 7 ", 1)


_COPIES = 40


def printed(log: Path) -> tuple[bytes, str, str]:
    """Return the lines of a log, the complaints, and the error at the end."""
    out, err, end = io.BytesIO(), [], ""
    try:
        dump_files([str(log)], options_for(log.parent.name), out.write, err.append)
    except (CorruptLogError, ValueError) as error:
        end = f"{type(error).__name__}: {error}"
    return out.getvalue(), "".join(err), end


def test_a_thread_that_decodes_ahead_changes_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of golden logs, many damaged, give the same as small logs and as large ones."""
    dice = random.Random(4)
    logs = [one for one in sorted(_GOLDEN.glob("*/data/*/*.log")) if one.stat().st_size]
    monkeypatch.setattr(log_dump, "_BYTES_PER_JOB", 300)
    ends = set()
    for log in dice.choices(logs, k=_COPIES):
        data = bytearray(log.read_bytes())
        for _ in range(dice.choice([0, 1, 2])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        copy = tmp_path / log.parent.name / log.name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(data)
        dumps = []
        for is_small in (True, False):
            monkeypatch.setattr(log_dump, "are_small", lambda sizes, small=is_small: small)
            dumps.append(printed(copy))
        assert dumps[0] == dumps[1]
        ends.add(bool(dumps[0][2]))
    assert ends == {True, False}
