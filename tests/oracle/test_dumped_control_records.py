"""`kafkascan dump-log` prints control records of each type and version as Kafka's tool does."""

from __future__ import annotations

import io
import random
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.format.errors import KafkaScanError
from kafkascan.records.control import ControlRecordType, encode_control_record
from tests.oracle.build import ClassPaths
from tests.oracle.dump import run_dump
from tests.support.records import RecordV2, batch_of

pytestmark = pytest.mark.oracle

_RECORDS = 400
_CONTROL = 0x20
_MODES = (
    ["--deep-iteration"],
    ["--print-data-log"],
    ["--print-data-log", "--skip-record-metadata"],
)
_TRANSACTION_MARKERS = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


def _text(dice: random.Random) -> str:
    return dice.choice(["", "a", 'quoted "host"', "back\\slash", "tab\t", "ü", "日本", "😀", "\0"])


def _voter(dice: random.Random) -> dict[str, Any]:
    endpoint = {"name": _text(dice), "host": _text(dice), "port": dice.randrange(1 << 16)}
    feature = {"min_supported_version": 0, "max_supported_version": dice.randrange(-1, 3)}
    return {
        "voter_id": dice.randrange(-1, 1 << 31),
        "voter_directory_id": uuid.UUID(int=dice.choice([0, dice.getrandbits(128)])),
        "endpoints": [endpoint] * dice.randrange(3),
        "k_raft_version_feature": feature,
    }


def _leader_voters(dice: random.Random) -> list[dict[str, Any]]:
    return [{"voter_id": dice.randrange(1 << 31)} for _ in range(dice.randrange(4))]


_Message = Callable[[random.Random], dict[str, Any]]
_MESSAGES: dict[ControlRecordType, _Message] = {
    **dict.fromkeys(
        _TRANSACTION_MARKERS,
        lambda dice: {"coordinator_epoch": dice.randrange(-(1 << 31), 1 << 31)},
    ),
    ControlRecordType.LEADER_CHANGE: lambda dice: {
        "leader_id": dice.randrange(-1, 1 << 31),
        "voters": _leader_voters(dice),
        "granting_voters": _leader_voters(dice),
    },
    ControlRecordType.SNAPSHOT_HEADER: lambda dice: {
        "last_contained_log_timestamp": dice.randrange(-(1 << 63), 1 << 63)
    },
    ControlRecordType.SNAPSHOT_FOOTER: lambda _: {},
    ControlRecordType.KRAFT_VERSION: lambda dice: {"k_raft_version": dice.randrange(-1, 1 << 15)},
    ControlRecordType.KRAFT_VOTERS: lambda dice: {
        "voters": [_voter(dice) for _ in range(dice.randrange(4))]
    },
}


def control_record(dice: random.Random) -> RecordV2:
    """Return a random control record; its bytes are those of version 0, whatever it says."""
    kind = dice.choice(list(_MESSAGES))
    key, value = encode_control_record(kind, _MESSAGES[kind](dice))
    if dice.random() < 0.1:
        key = key[:2] + dice.choice([b"\0\x07", b"\0\x63", b"\xff\xff", b"\x7f\xff"])
    if dice.random() < 0.1:
        key = dice.choice([b"\0\1", b"\0\7"]) + key[2:]
    if dice.random() < 0.2:
        value = dice.choice([b"\0\1", b"\0\2", b"\x7f\xff"]) + value[2:]
    if kind not in _TRANSACTION_MARKERS and dice.random() < 0.1:
        value = value[:-1] + b"\1\5\2ab"  # a tagged field that is not known
    if dice.random() < 0.1:
        value = dice.choice([value + b"later", value[:-1], b"", b"\0"])
    return RecordV2(key, value)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root, dice = tmp_path_factory.mktemp("control"), random.Random(853)
    found = []
    for number in range(_RECORDS):
        records = [control_record(dice) for _ in range(dice.choice([1, 1, 2]))]
        file = root / str(number) / f"{0:020}.log"
        file.parent.mkdir()
        file.write_bytes(batch_of(records, attributes=_CONTROL))
        found.append(file)
    return found


def printed(file: Path, mode: list[str]) -> tuple[str, bool]:
    out = io.BytesIO()
    options = DumpOptions(
        is_deep=True,
        prints_data="--print-data-log" in mode,
        skips_metadata="--skip-record-metadata" in mode,
    )
    try:
        dump_files([str(file)], options, out.write, str)
    except KafkaScanError:
        return out.getvalue().decode(), True
    return out.getvalue().decode(), False


def test_same_lines(files: list[Path], class_paths: ClassPaths, tmp_path: Path) -> None:
    arguments = [["--files", str(file), *mode] for file in files for mode in _MODES]
    dumped = run_dump(arguments, tmp_path, class_paths.dump)
    met: Counter[bool] = Counter()
    wrong = []
    for (_, name, *mode), (out, err) in zip(arguments, dumped, strict=True):
        died = err.startswith("Exception in thread")
        # It may die within a line.
        expected = out[: out.rindex("\n") + 1] if died else out
        met[died] += 1
        if printed(Path(name), mode) != (expected, died):
            wrong.append(f"{name} {mode}\n{printed(Path(name), mode)}\n{(out, err[:300])}")
    assert not wrong, "\n".join(wrong[:8]) + f"\n{len(wrong)}: {met}"
    assert min(met.values()) > 50, met
