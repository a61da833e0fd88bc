"""`kafkascan dump-log` prints of damaged logs what DumpLogSegments prints, until it dies."""

from __future__ import annotations

import io
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.dump_log import log_dump
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.format.errors import KafkaScanError
from tests.oracle.build import ClassPaths
from tests.oracle.complaints import Dump, dump_all
from tests.support.segments import sign

pytestmark = pytest.mark.oracle

_GOLDEN = Path(__file__).parents[1] / "golden"
_OLD = _GOLDEN / "kafka-2.8.2" / "data"
_MAGIC_AT = 16
_COPIES = 1000
_PRINTED = ("--deep-iteration", "--print-data-log")
_CONTROL, _LEGACY = " isControl: true ", "offset: "


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return a copy with some other bytes, more often in headers, and maybe another end."""
    copy = bytearray(data)
    for _ in range(dice.choice([1, 1, 1, 2, 8])):
        at = dice.choice([dice.randrange(len(copy)), dice.randrange(min(len(copy), 90))])
        copy[at] = dice.choice([dice.randrange(256), copy[at] ^ 1 << dice.randrange(8)])
    if dice.random() < 0.1:
        del copy[dice.randrange(len(copy)) :]
    return bytes(copy)


@pytest.fixture(scope="module")
def dumps(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> list[Dump]:
    root, dice = tmp_path_factory.mktemp("lines"), random.Random(20)
    logs = [one for one in sorted(_GOLDEN.glob("*/data/*/*.log")) if one.stat().st_size]
    files = []
    for number in range(_COPIES):
        log = dice.choice(logs)
        folder = root / f"{log.parent.name}.{number}"
        folder.mkdir()
        shutil.copy(log, folder / log.name)
        (folder / log.name).write_bytes(damaged(log.read_bytes(), dice))
        files.append(folder / log.name)
    return dump_all([(file, _PRINTED) for file in files], root / "printed", class_paths)


def printed(file: Path, *, prints_data: bool = True) -> tuple[str, bool]:
    """Return our lines, and whether an error ended them."""
    out, options = io.BytesIO(), DumpOptions(is_deep=True, prints_data=prints_data)
    try:
        dump_files([str(file)], options, out.write, str)
    except (KafkaScanError, ValueError):
        is_ended = True
    else:
        is_ended = False
    # As the tool's output was read.
    return io.TextIOWrapper(io.BytesIO(out.getvalue()), "utf-8").read(), is_ended


@pytest.mark.parametrize("is_small", [True, False])
def test_same_lines_until_the_tool_dies(
    dumps: list[Dump], is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dump, "are_small", lambda _: is_small)
    met: Counter[str] = Counter()
    wrong = []
    for dump in dumps:
        lines, is_ended = printed(dump.file)
        died = any(one.what == "exception" for one in dump.complaints)
        # It may die within a line.
        expected = dump.stdout[: dump.stdout.rindex("\n") + 1] if died else dump.stdout
        if (lines, is_ended) == (expected, died):
            met["died" if died else "whole"] += 1
        elif died and is_ended and is_cut_in_a_batch(lines, expected):
            met["cut in a batch"] += 1  # only with data, which is decoded as a whole
        elif is_ended and not died and _CONTROL in last_line(lines):
            # The tool decodes each version of a control record as version 0.
            assert expected.startswith(lines)
            met["another version"] += 1
        else:
            wrong.append(f"{dump.file}: {is_ended} instead of {died}")
    assert not wrong, "\n".join(wrong[:20]) + f"\n{len(wrong)} of {len(dumps)}: {met}"
    assert met["another version"] < len(dumps) // 100, met
    assert min(met["died"], met["whole"]) > len(dumps) // 10, met


def last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


def is_cut_in_a_batch(ours: str, tools: str) -> bool:
    """Return whether only messages of the last message are left out, which is compressed."""
    left = tools.removeprefix(ours)
    head = last_line(ours)
    return tools.startswith(ours) and "\nbaseOffset" not in left and head.startswith(_LEGACY)


def flipped_messages(log: Path) -> Iterator[bytes]:
    """Yield a log of five messages, with each bit of one behind its magic flipped."""
    data = log.read_bytes()
    scan = ks.scan_batches(data)
    plain = scan.batches[ks.batches.compression_type(scan.batches) == 0]
    sizes = ks.batches.size_in_bytes(plain).tolist()
    messages = [data[at : at + size] for at, size in zip(plain["position"], sizes, strict=True)]
    longest = max(range(len(messages)), key=lambda number: len(messages[number]))
    chosen = [*messages[:2], messages[longest], *messages[2:4]]
    for at in range(_MAGIC_AT + 1, len(chosen[2])):
        for bit in range(8):
            message = bytearray(chosen[2])
            message[at] ^= 1 << bit
            yield b"".join([*chosen[:2], message, *chosen[3:]])
            sign(message)
            yield b"".join([*chosen[:2], message, *chosen[3:]])


def test_messages_with_any_bit_flipped(class_paths: ClassPaths, tmp_path: Path) -> None:
    """Without data, the tool goes on after a message that exceeds itself, where ours ends."""
    files: list[Path] = []
    for name in ("magic-0-0", "magic-1-0"):
        for number, data in enumerate(flipped_messages(_OLD / name / f"{0:020}.log")):
            folder = tmp_path / f"{name}.{number}"
            folder.mkdir()
            files.append(folder / f"{0:020}.log")
            files[-1].write_bytes(data)
    modes = (_PRINTED, _PRINTED[:1])
    dumps = dump_all([(one, mode) for one in files for mode in modes], tmp_path, class_paths)
    for dump in dumps:
        prints_data = dump.mode == _PRINTED
        lines, is_ended = printed(dump.file, prints_data=prints_data)
        died = any(one.what == "exception" for one in dump.complaints)
        expected = dump.stdout[: dump.stdout.rindex("\n") + 1] if died else dump.stdout
        if not prints_data and printed(dump.file)[1]:
            assert is_ended, dump.file
            assert expected.startswith(lines), dump.file
        else:
            assert (lines, is_ended) == (expected, died), dump.file
