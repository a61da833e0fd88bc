"""Checkpoint and metadata files: files of brokers survive a round trip; damage is reported."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.support.paths import GOLDEN

DATA = GOLDEN / "kafka-4.4.0" / "data"

Read = Callable[[Path], Any]
Write = Callable[[Path, Any], None]

FILES: list[tuple[str, Read, Write]] = [
    (
        "*/data/*/leader-epoch-checkpoint",
        ks.broker_state.read_leader_epochs,
        ks.broker_state.write_leader_epochs,
    ),
    (
        "*/data/*-offset-checkpoint",
        ks.broker_state.read_offset_checkpoint,
        ks.broker_state.write_offset_checkpoint,
    ),
    (
        "*/data/*/partition.metadata",
        ks.broker_state.read_partition_metadata,
        ks.broker_state.write_partition_metadata,
    ),
    (
        "*/data/.kafka_cleanshutdown",
        ks.broker_state.read_clean_shutdown,
        ks.broker_state.write_clean_shutdown,
    ),
]


@pytest.mark.parametrize(("pattern", "read", "write"), FILES)
def test_files_of_brokers_are_written_back(
    pattern: str, read: Read, write: Write, tmp_path: Path
) -> None:
    paths = [path for path in GOLDEN.glob(pattern) if path.stat().st_size]
    assert paths
    for path in paths:
        write(tmp_path / path.name, read(path))
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path


def test_contents() -> None:
    transactions = DATA / "transactions-0"
    assert ks.broker_state.read_leader_epochs(transactions / "leader-epoch-checkpoint")[0] == (0, 0)
    offsets = ks.broker_state.read_offset_checkpoint(DATA / "recovery-point-offset-checkpoint")
    assert offsets["transactions", 0] == 41
    metadata = ks.broker_state.read_partition_metadata(transactions / "partition.metadata")
    assert metadata.version == 0
    assert isinstance(metadata.topic_uuid, uuid.UUID)
    assert len(metadata.topic_id) == 22


def test_what_kafka_would_refuse_is_not_written(tmp_path: Path) -> None:
    state, path = ks.broker_state, tmp_path / "file"
    for write, content in (
        (state.write_leader_epochs, [state.LeaderEpoch(2**31, 0)]),
        (state.write_offset_checkpoint, {("two words", 0): 5}),
        (state.write_offset_checkpoint, {("t", 0): 2**63}),
        (state.write_partition_metadata, state.PartitionMetadata(0, "orders")),
    ):
        with pytest.raises(ValueError, match=r"BAD_CHECKPOINT|not a topic id"):
            write(path, content)
        assert not path.exists()


def test_meta_properties(tmp_path: Path) -> None:
    properties = ks.broker_state.read_meta_properties(DATA / "meta.properties")
    assert properties["node.id"] == "1"
    assert properties["version"] == "1"
    odd = properties | {"cluster.id": r"a:b=c\d #e"}
    ks.broker_state.write_meta_properties(tmp_path / "meta.properties", odd)
    assert ks.broker_state.read_meta_properties(tmp_path / "meta.properties") == odd


def test_empty_files_are_empty(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    for text in ("", "0\n"):
        path.write_text(text)
        assert ks.broker_state.read_leader_epochs(path) == []
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    assert ks.broker_state.read_clean_shutdown(tmp_path / ".kafka_cleanshutdown").broker_epoch == -1


def test_lines_are_split_as_by_java(tmp_path: Path) -> None:
    """``readLine``, ``split("\\s+")``, ``parseInt`` and ``parseLong``."""
    path = tmp_path / "checkpoint"
    longest = "-9223372036854775808"
    path.write_bytes(f"0\r\n4\r0  1\n+2\t0005 \x0b\r\n-2147483648 {longest}\r3 7".encode())
    epochs = ks.broker_state.read_leader_epochs(path)
    assert epochs == [(0, 1), (2, 5), (-(1 << 31), -(1 << 63)), (3, 7)]
    assert {type(one) for one in epochs} == {ks.broker_state.LeaderEpoch}
    path.write_bytes("0\n2\nß 0 1\na\xa0b  +1  9223372036854775807 ".encode())
    offsets = ks.broker_state.read_offset_checkpoint(path)
    assert offsets == {("ß", 0): 1, ("a\xa0b", 1): (1 << 63) - 1}


@pytest.mark.parametrize(
    ("read", "text", "position"),
    [
        (ks.broker_state.read_leader_epochs, "1\n0\n", 0),
        (ks.broker_state.read_leader_epochs, "x\n0\n", 0),
        (ks.broker_state.read_leader_epochs, "0\n1\n5\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n1\n5 x\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n1\n5 1_0\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n2\n5 6\n", 2),
        (ks.broker_state.read_leader_epochs, "0\n2\n5 6\n 5 6\n", 8),
        (ks.broker_state.read_leader_epochs, "0\n2\n5 6\n\n", 8),
        (ks.broker_state.read_leader_epochs, "0\n1\n5 6 7\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n1\n+ 6\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n1\n5 9223372036854775808\n", 4),
        (ks.broker_state.read_offset_checkpoint, "0\n1\n t 1 5\n", 4),
        (ks.broker_state.read_offset_checkpoint, "0\n2\nt 1 5\r\nt 1\n", 11),
        (ks.broker_state.read_leader_epochs, "0\n1\n" + "9" * 5000 + " 6\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n1\n2147483648 6\n", 4),
        (ks.broker_state.read_offset_checkpoint, "0\n1\nt 1 9223372036854775808\n", 4),
        (ks.broker_state.read_leader_epochs, "0\n0\n5 6\n", 2),
        (ks.broker_state.read_offset_checkpoint, "0\n1\ntopic 6\n", 4),
        (ks.broker_state.read_partition_metadata, "version: 0\n", 0),
        (
            ks.broker_state.read_partition_metadata,
            "version: x\ntopic_id: UuM8SRftR_a09LESglh72A\n",
            0,
        ),
        (
            ks.broker_state.read_partition_metadata,
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
            0,
        ),
        (ks.broker_state.read_partition_metadata, "version: 0\ntopic_id: short\n", 0),
        (ks.broker_state.read_partition_metadata, "version: 0\nnonsense\n", 11),
        (ks.broker_state.read_meta_properties, "a=1\nnonsense\n", 4),
        (ks.broker_state.read_clean_shutdown, "nonsense", 0),
        (ks.broker_state.read_clean_shutdown, "[1]", 0),
        (ks.broker_state.read_clean_shutdown, '{"version": 0, "brokerEpoch": 1e400}', 0),
        (ks.broker_state.read_clean_shutdown, "{" * 5000, 0),
    ],
)
def test_damaged_files(read: Read, text: str, position: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ks.format.CorruptCheckpointError, match="BAD_CHECKPOINT") as refused:
        read(path)
    assert (refused.value.path, refused.value.position) == (str(path), position)


def test_files_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n1\n\xff 3\n")
    with pytest.raises(ks.format.CorruptCheckpointError, match="position 4: the file is not text"):
        ks.broker_state.read_leader_epochs(path)
