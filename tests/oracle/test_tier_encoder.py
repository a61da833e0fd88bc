"""Segments that an independent encoder stored in the format of Aiven's plugin are read back."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkascan.tiered import CorruptObjectError, TieredLogs, open_tiered
from tests.oracle.build import package
from tests.oracle.jvm import java_command
from tests.support.paths import GOLDEN
from tests.support.waiting import HANG_SECONDS

pytestmark = pytest.mark.oracle

_PROJECT = Path(__file__).with_name("java-tier")
_KINDS = {
    "plain": (False, False),
    "zstd": (True, False),
    "encrypted": (False, True),
    "both": (True, True),
}
# The names of the index files, by the fields of the manifest.
_PARTS = {
    "offset": "index",
    "timestamp": "timeindex",
    "producerSnapshot": "snapshot",
    "leaderEpoch": "leader-epoch-checkpoint",
    "transaction": "txnindex",
}


@dataclass(frozen=True)
class Stored:
    """A segment, and how it is stored."""

    log: bytes
    parts: dict[str, bytes]
    chunk_size: int
    chunk_index: str


def _golden_log() -> bytes:
    folder = GOLDEN / "kafka-4.4.0" / "data" / "transactions-0"
    return max((log.read_bytes() for log in folder.glob("*.log")), key=len)


def _stored(is_compressed: bool) -> dict[str, Stored]:
    """Return one segment per name of a topic."""
    noise = random.Random(21)
    small = noise.randbytes(1000) + bytes(1000)
    parts = {name: noise.randbytes(20 + number) for number, name in enumerate(_PARTS)}
    no_transactions = {name: data for name, data in parts.items() if name != "transaction"}
    empty = dict.fromkeys(parts, b"")
    golden = _golden_log()
    cases = {
        "golden": Stored(golden, parts, 700, "variable"),
        "empty": Stored(b"", no_transactions, 700, "variable"),
        "empty-fixed": Stored(b"", empty, 700, "fixed"),
        "one-byte": Stored(b"\x07", parts, 700, "variable"),
        "one-byte-fixed": Stored(b"\x07", parts, 700, "fixed"),
        "one-chunk": Stored(small, parts, len(small), "variable"),
        "last-of-one-byte": Stored(golden[:2101], no_transactions, 700, "variable"),
        # Compressed chunks differ, and a fixed index has two sizes: of two chunks, any.
        "last-of-one-byte-fixed": Stored(golden, parts, len(golden) - 1, "fixed")
        if is_compressed
        else Stored(golden[:2101], parts, 700, "fixed"),
        "equal-chunks-fixed": Stored(bytes(range(250)) * 12, empty, 250, "fixed"),
        "whole-chunks": Stored(golden[:2100], parts, 700, "variable"),
    }
    if is_compressed:
        # Sizes whose differences need 2, 3, and 4 bytes.
        for width, size in ((2, 5000), (3, 100_000), (4, 17_000_000)):
            log = bytes(size) + noise.randbytes(size) + b"end"
            cases[f"width-{width}"] = Stored(log, no_transactions, size, "variable")
    return cases


def _jobs(root: Path, inputs: Path, kind: str) -> list[dict[str, object]]:
    is_compressed, is_encrypted = _KINDS[kind]
    jobs: list[dict[str, object]] = []
    for number, (topic, stored) in enumerate(_stored(is_compressed).items()):
        folder = inputs / kind / topic
        folder.mkdir(parents=True)
        (folder / "log").write_bytes(stored.log)
        for name, data in stored.parts.items():
            (folder / name).write_bytes(data)
        jobs.append({
            "root": str(root / kind), "prefix": "tier/", "topic": topic,
            "topicId": _topic_id(number), "partition": number,
            "startOffset": 100 * number, "endOffset": 100 * number + 99,
            "log": str(folder / "log"), "parts": {one: str(folder / one) for one in stored.parts},
            "chunkSize": stored.chunk_size, "chunkIndex": stored.chunk_index,
            "compressed": is_compressed, "encrypted": is_encrypted,
        })  # fmt: skip
    return jobs


def _topic_id(number: int) -> str:
    # 0xFB is "-" and "_" in this alphabet, also at the beginning.
    return base64.urlsafe_b64encode(b"\xfb\xff" * 7 + bytes([0, number])).rstrip(b"=").decode()


def _encode(jobs: Sequence[dict[str, object]], private_key: Path) -> None:
    package(_PROJECT)
    target = _PROJECT / "target"
    class_path = f"{target}/oracle-tier.jar:{target}/lib/*"
    encoder = subprocess.run(
        java_command(class_path, "kafkascan.oracle.TierEncoder", [str(private_key)], heap="768m"),
        input="".join(json.dumps(job) + "\n" for job in jobs),
        capture_output=True, text=True, check=False, timeout=HANG_SECONDS,
    )  # fmt: skip
    assert encoder.returncode == 0, encoder.stderr


@dataclass(frozen=True)
class Encoded:
    """The folders of all kinds, and the key of the encrypted ones."""

    root: Path
    private_key: Path

    def open(self, kind: str) -> TieredLogs:
        return open_tiered(self.root / kind, keys={"oracle-key": self.private_key})


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Encoded:
    folder = tmp_path_factory.mktemp("encoder")
    jobs = [job for kind in _KINDS for job in _jobs(folder, folder / "inputs", kind)]
    _encode(jobs, folder / "private.pem")
    return Encoded(folder, folder / "private.pem")


@pytest.mark.parametrize("kind", _KINDS)
def test_bytes_and_indexes_are_the_original_ones(encoded: Encoded, kind: str) -> None:
    is_compressed, is_encrypted = _KINDS[kind]
    tier = encoded.open(kind)
    assert (tier.layout, tier.problems) == ("aiven", [])
    expected = _stored(is_compressed)
    segments = {segment.topic: segment for segment in tier.remote_segments}
    assert segments.keys() == expected.keys()
    for number, (topic, stored) in enumerate(expected.items()):
        segment = segments[topic]
        assert segment.log.read() == stored.log, topic
        assert {name: file.read() for name, file in segment.side_files.items()} == {
            _PARTS[name]: data for name, data in stored.parts.items()
        }, topic
        assert (segment.size, segment.partition) == (len(stored.log), number)
        assert (segment.topic_id, segment.base_offset) == (_topic_id(number), 100 * number)
        assert (segment.end_offset, segment.leader_epochs) == (
            100 * number + 99,
            ((0, 100 * number),),
        )
        assert (segment.is_compressed, segment.is_encrypted) == (is_compressed, is_encrypted)


@pytest.mark.parametrize("kind", _KINDS)
def test_ranges_over_chunks(encoded: Encoded, kind: str) -> None:
    tier = encoded.open(kind)
    choice = random.Random(3)
    expected = _golden_log()
    (partition,) = (one for one in tier.partitions if one.topic == "golden")
    (segment,) = partition.log_segments
    with segment.open() as source:
        for _ in range(200):
            start = choice.randrange(len(expected))
            size = choice.randrange(1, min(2000, len(expected) - start) + 1)
            assert bytes(source.window(start, size)) == expected[start : start + size]


@pytest.mark.parametrize("kind", ["encrypted", "both"])
def test_a_changed_byte_is_an_error_of_its_object(encoded: Encoded, kind: str) -> None:
    tier = encoded.open(kind)
    (segment,) = (one for one in tier.remote_segments if one.topic == "whole-chunks")
    (log,) = (encoded.root / kind / "tier").glob("whole-chunks-*/*/*.log")
    original = log.read_bytes()
    log.write_bytes(original[:40] + bytes([original[40] ^ 1]) + original[41:])
    try:
        with pytest.raises(CorruptObjectError, match=r"\.log"):
            segment.log.read()
    finally:
        log.write_bytes(original)
