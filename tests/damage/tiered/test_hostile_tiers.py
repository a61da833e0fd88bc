"""Remote segments that are damaged, swapped or made to harm: an error, never wrong bytes."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.format.errors import NoLogsError
from kafkascan.tiered import CorruptObjectError, open_tiered
from kafkascan.tiered.segment_manifest import parse_manifest
from tests.support.paths import GOLDEN
from tests.support.tiers import KEY_ID, TOPIC_ID, AivenTier, new_cipher, put_local

LOG = GOLDEN / "kafka-4.4.0" / "data" / "idempotent-0" / "00000000000000000000.log"
CHUNK = 300


@pytest.fixture(scope="module")
def private_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "private.pem"


def manifest_of(tmp_path: Path, **options: Any) -> tuple[Path, dict[str, Any]]:
    name = AivenTier(tmp_path, chunk_size=CHUNK, **options).put_segment(LOG, 24, 1)
    path = tmp_path / f"{name}.rsm-manifest"
    return path, json.loads(path.read_text())


def read_all(tmp_path: Path, **options: Any) -> bytes:
    (partition,) = open_tiered(tmp_path, **options).partitions
    (segment,) = partition.log_segments
    with segment.open() as source:
        return bytes(source.window(0, source.size))


def is_noticed(data: bytes) -> bool:
    """Whether a scan with checksums finds the damage, or it is in the fields that have none."""
    scan = ks.scan_batches(data, on_corrupt="stop")
    if scan.end is not ks.ScanEnd.CLEAN or not ks.verify_crcs(data, scan.batches).all():
        return True
    intact = ks.scan_batches(LOG).batches
    unsigned = ("base_offset", "partition_leader_epoch")
    return any((scan.batches[name] != intact[name]).any() for name in unsigned)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_each_flipped_byte_of_encrypted_chunks_is_found(
    tmp_path: Path, private_key: Path, is_compressed: bool
) -> None:
    keys = {KEY_ID: private_key}
    path, _ = manifest_of(tmp_path, cipher=new_cipher(private_key), is_compressed=is_compressed)
    log = path.with_suffix(".log")
    stored = log.read_bytes()
    assert read_all(tmp_path, keys=keys) == LOG.read_bytes()
    for at in random.Random(1).sample(range(len(stored)), 40):
        log.write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
        with pytest.raises(CorruptObjectError, match="encrypted bytes were changed") as found:
            read_all(tmp_path, keys=keys)
        assert found.value.position <= at
        assert found.value.path == str(log)


def test_flipped_bytes_of_compressed_chunks(tmp_path: Path) -> None:
    """Chunks have no checksum: what they do not detect, the checksums of batches do."""
    path, _ = manifest_of(tmp_path, is_compressed=True)
    log = path.with_suffix(".log")
    stored = log.read_bytes()
    for at in random.Random(2).sample(range(len(stored)), 60):
        log.write_bytes(stored[:at] + bytes([stored[at] ^ 4]) + stored[at + 1 :])
        try:
            data = read_all(tmp_path)
        except CorruptObjectError:
            continue
        assert data == LOG.read_bytes() or is_noticed(data)


def test_swapped_chunks_decrypt_but_do_not_verify(tmp_path: Path, private_key: Path) -> None:
    path, _ = manifest_of(tmp_path, cipher=new_cipher(private_key))
    log = path.with_suffix(".log")
    stored, size = log.read_bytes(), CHUNK + 28
    log.write_bytes(stored[size : 2 * size] + stored[:size] + stored[2 * size :])
    assert is_noticed(read_all(tmp_path, keys={KEY_ID: private_key}))


def test_a_truncated_object(tmp_path: Path) -> None:
    path, _ = manifest_of(tmp_path, is_compressed=True)
    log = path.with_suffix(".log")
    log.write_bytes(log.read_bytes()[:-5])
    (problem,) = open_tiered(tmp_path).problems
    assert problem.symbol == "SIZE_MISMATCH"
    with pytest.raises(CorruptObjectError, match=r"position \d+: the object ends at \d+"):
        read_all(tmp_path)


def test_another_private_key(tmp_path: Path, private_key: Path) -> None:
    manifest_of(tmp_path / "tier", cipher=new_cipher(private_key))
    other = tmp_path / "other.pem"
    new_cipher(other)
    with pytest.raises(NoLogsError, match=r"does not decrypt the data key.*MISSING_KEY"):
        open_tiered(tmp_path / "tier", keys={KEY_ID: other})
    other.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(NoLogsError, match="the private key of 'key-2026', cannot be read"):
        open_tiered(tmp_path / "tier", keys={KEY_ID: other})


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "version": lambda top: top.update(version="2"),
    "no chunks": lambda top: top.pop("chunkIndex"),
    "chunks of another type": lambda top: top.update(chunkIndex=[]),
    "kind of chunks": lambda top: top["chunkIndex"].update(type="sparse"),
    "chunk size 0": lambda top: top["chunkIndex"].update(originalChunkSize=0),
    "negative file size": lambda top: top["chunkIndex"].update(originalFileSize=-1),
    "huge file size": lambda top: top["chunkIndex"].update(originalFileSize=1 << 40),
    "a size that is text": lambda top: top["chunkIndex"].update(originalFileSize="7"),
    "a size that is true": lambda top: top["chunkIndex"].update(originalFileSize=True),
    "sizes that are not base64": lambda top: top["chunkIndex"].update(transformedChunks="*"),
    "no index": lambda top: top["segmentIndexes"].update(offset=None),
    "negative index": lambda top: top["segmentIndexes"]["offset"].update(size=-4),
    "compression": lambda top: top.update(compression="yes"),
    "encryption": lambda top: top.update(encryption={"dataKey": "a:b:c", "aad": ""}),
    "no aad": lambda top: top.update(encryption={"dataKey": "a:b"}),
    "epochs": lambda top: top["remoteLogSegmentMetadata"].update(segmentLeaderEpochs={"x": 0}),
    "an epoch of more than 64 bits": lambda top: top["remoteLogSegmentMetadata"].update(
        segmentLeaderEpochs={str(2**63): 0}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_manifests_that_contradict_the_format(tmp_path: Path, change: str) -> None:
    path, manifest = manifest_of(tmp_path, is_compressed=True)
    CHANGES[change](manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(NoLogsError, match=r"position 0: .* \[(CORRUPT_OBJECT|MISSING_KEY)\]"):
        open_tiered(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "null", "[" * 100_000, '{"version": ' + "9" * 10_000, "\udcff"]
)
def test_manifests_that_are_not_objects(text: str) -> None:
    with pytest.raises(CorruptObjectError):
        parse_manifest(text.encode(errors="surrogateescape"), "manifest")


@given(st.data())
def test_any_bytes_are_a_manifest_or_an_error(data: st.DataObject) -> None:
    leaf = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
    names = ["version", "chunkIndex", "segmentIndexes", "type", "compression", "encryption"]
    tree = st.recursive(
        leaf, lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(names), inner, max_size=4), max_leaves=12,
    )  # fmt: skip
    text = json.dumps(data.draw(st.dictionaries(st.sampled_from(names), tree)) | {"version": "1"})
    with pytest.raises(CorruptObjectError):
        parse_manifest(text.encode(), "manifest")


def test_small_objects_allocate_little(tmp_path: Path) -> None:
    """A chunk index of 2^31 bytes and a frame that announces a gigabyte."""
    path, manifest = manifest_of(tmp_path, is_compressed=True)
    manifest["chunkIndex"] = {
        "type": "fixed", "originalChunkSize": (1 << 30) - 1, "originalFileSize": (1 << 31) - 1,
        "transformedChunkSize": 20, "finalTransformedChunkSize": 20,
    }  # fmt: skip
    path.write_text(json.dumps(manifest))
    path.with_suffix(".log").write_bytes(bytes.fromhex("28b52ffda0ffffff3f") + bytes(51))
    tracemalloc.start()
    try:
        (partition,) = open_tiered(tmp_path).partitions
        with pytest.raises(CorruptObjectError), partition.log_segments[0].open() as source:
            source.window(0, 100)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("topic_id", ["A" * 22, "_" * 22])
def test_a_topic_id_that_is_none(tmp_path: Path, topic_id: str) -> None:
    """One such name does not hide the other partitions."""
    data = GOLDEN / "kafka-4.4.0" / "data"
    put_local(tmp_path, data / "idempotent-0")
    put_local(tmp_path, data / "headers-0")
    (folder,) = (one for one in tmp_path.rglob(f"headers-0-{TOPIC_ID}") if one.is_dir())
    folder.rename(folder.with_name(f"headers-0-{topic_id}"))
    tier = open_tiered(tmp_path)
    assert [one.topic for one in tier.partitions] == ["headers", "idempotent"]
    assert tier.partitions[0].topic_id in (None, topic_id)
    assert len(ks.read_records(tier.partitions[0])) == len(ks.read_records(data / "headers-0"))
