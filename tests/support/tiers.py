"""Store the segments of a partition folder as Aiven's plugin and `LocalTieredStorage` do.

Written from docs/format.md, without code of the package.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from tests.support.waiting import IS_SANITIZED

TOPIC_ID = "lZ6vvmajTWKDBUTV6SQAtQ"
KEY_ID = "key-2026"
_FIELDS = {
    "index": "offset",
    "timeindex": "timestamp",
    "snapshot": "producerSnapshot",
    "leader-epoch-checkpoint": "leaderEpoch",
    "txnindex": "transaction",
}


def segment_id(number: int) -> str:
    return base64.urlsafe_b64encode(struct.pack(">qq", 7, number)).rstrip(b"=").decode()


def encode_sizes(sizes: list[int]) -> bytes:
    """Return ``transformedChunks`` before base64."""
    content = struct.pack(">i", len(sizes))
    if len(sizes) == 1:
        content += struct.pack(">i", sizes[0])
    if len(sizes) > 1:
        base = min(sizes[:-1])
        width = max(1, (max(sizes[:-1]) - base).bit_length() + 7 >> 3)
        content += struct.pack(">iB", base, width)
        content += b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
        content += struct.pack(">i", sizes[-1])
    return zstandard.compress(content)


@dataclass(frozen=True)
class Cipher:
    """A data key, and its text in manifests."""

    key: bytes
    aad: bytes
    wrapped: str

    def encrypt(self, data: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(12)
        return nonce + AESGCM(self.key).encrypt(nonce, data, self.aad)


def new_cipher(private_key: Path) -> Cipher:
    """Write a new private key, and return a cipher whose data key it decrypts."""
    if IS_SANITIZED:
        pytest.skip("the sanitizers end a process that loads pycryptodome (RTLD_DEEPBIND)")
    pytest.importorskip("Crypto")
    pytest.importorskip("cryptography")
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512
    from Crypto.PublicKey import RSA

    pair = RSA.generate(2048)
    private_key.write_bytes(pair.export_key(pkcs=8))
    key = os.urandom(32)
    wrapped = PKCS1_OAEP.new(pair.public_key(), hashAlgo=SHA3_512).encrypt(key)
    return Cipher(key, os.urandom(32), f"{KEY_ID}:{base64.b64encode(wrapped).decode()}")


@dataclass(frozen=True)
class AivenTier:
    """Where and how segments are stored."""

    root: Path
    prefix: str = ""
    chunk_size: int = 1000
    is_compressed: bool = False
    cipher: Cipher | None = None

    def put_partition(self, folder: Path) -> list[str]:
        """Store all segments of a partition folder; return the names of their keys."""
        logs = sorted(folder.glob("*.log"))
        bases = [int(log.stem) for log in logs]
        snapshots = sorted(int(one.stem) for one in folder.glob("*.snapshot"))
        ends = [*bases[1:], max([*snapshots, bases[-1]])]
        return [
            self.put_segment(log, next_offset, number)
            for number, (log, next_offset) in enumerate(zip(logs, ends, strict=True))
        ]

    def put_segment(self, log: Path, next_offset: int, number: int) -> str:
        """Store one segment; return the name that its keys have in common."""
        topic, _, partition = log.parent.name.rpartition("-")
        name = f"{self.prefix}{topic}-{TOPIC_ID}/{partition}/{log.stem}-{segment_id(number)}"
        data = log.read_bytes()
        chunks = [data[at : at + self.chunk_size] for at in range(0, len(data), self.chunk_size)]
        stored = [self._transformed(chunk) for chunk in chunks or [b""]]
        parts = self._parts(log, next_offset)
        manifest = {
            "version": "1",
            "chunkIndex": self._chunk_index(len(data), [len(one) for one in stored]),
            "segmentIndexes": _positions(parts),
            "compression": self.is_compressed,
            "remoteLogSegmentMetadata": _metadata(topic, partition, log, next_offset, number),
            "a field of tomorrow": [],
        }
        if self.cipher is not None:
            aad = base64.b64encode(self.cipher.aad).decode()
            manifest["encryption"] = {"dataKey": self.cipher.wrapped, "aad": aad}
        self._write(f"{name}.log", b"".join(stored))
        self._write(f"{name}.indexes", b"".join(part or b"" for part in parts.values()))
        self._write(f"{name}.rsm-manifest", json.dumps(manifest).encode())
        return name

    def _transformed(self, chunk: bytes) -> bytes:
        data = zstandard.compress(chunk) if self.is_compressed else chunk
        return data if self.cipher is None or not chunk else self.cipher.encrypt(data)

    def _parts(self, log: Path, next_offset: int) -> dict[str, bytes | None]:
        files = {
            "index": log.with_suffix(".index"),
            "timeindex": log.with_suffix(".timeindex"),
            "snapshot": log.with_name(f"{next_offset:020}.snapshot"),
            "leader-epoch-checkpoint": log.with_name("leader-epoch-checkpoint"),
            "txnindex": log.with_suffix(".txnindex"),
        }
        return {kind: self._part(kind, file, next_offset) for kind, file in files.items()}

    def _part(self, kind: str, file: Path, next_offset: int) -> bytes | None:
        if kind == "txnindex" and not file.exists():
            return None
        data = file.read_bytes() if file.exists() else b""
        if kind == "leader-epoch-checkpoint":
            data = epochs_up_to(data, next_offset)
        return self.cipher.encrypt(data) if self.cipher is not None and data else data

    def _chunk_index(self, size: int, stored: list[int]) -> dict[str, object]:
        index: dict[str, object] = {"originalChunkSize": self.chunk_size, "originalFileSize": size}
        if self.is_compressed:
            sizes = base64.b64encode(encode_sizes(stored)).decode()
            return index | {"type": "variable", "transformedChunks": sizes}
        sizes_of_all = {"transformedChunkSize": stored[0], "finalTransformedChunkSize": stored[-1]}
        return index | {"type": "fixed"} | sizes_of_all

    def _write(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _positions(parts: dict[str, bytes | None]) -> dict[str, object]:
    found: dict[str, object] = {}
    at = 0
    for kind, data in parts.items():
        found[_FIELDS[kind]] = None if data is None else {"position": at, "size": len(data)}
        at += len(data or b"")
    return found


def _metadata(
    topic: str, partition: str, log: Path, next_offset: int, number: int
) -> dict[str, object]:
    topic_partition = {"topic": topic, "partition": int(partition)}
    batches = headers_of(log.read_bytes())
    epochs: dict[str, int] = {}
    for offset, epoch, _ in batches:
        epochs.setdefault(str(epoch), offset)
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": TOPIC_ID, "topicPartition": topic_partition},
            "id": segment_id(number),
        },
        "startOffset": int(log.stem),
        "endOffset": next_offset - 1,
        "maxTimestampMs": max((time for _, _, time in batches), default=0),
        "brokerId": 1,
        "eventTimestampMs": 1_714_000_000_000 + number,
        "segmentLeaderEpochs": epochs,
    }


def epochs_up_to(data: bytes, next_offset: int) -> bytes:
    """Return the entries of a leader-epoch-checkpoint that begin up to an offset."""
    entries = [one for one in data.splitlines()[2:] if int(one.split()[1]) <= next_offset]
    return b"\n".join([b"0", b"%d" % len(entries), *entries, b""]) if data else b""


def headers_of(data: bytes) -> list[tuple[int, int, int]]:
    """Return base offset, leader epoch and latest timestamp of each batch."""
    found, at = [], 0
    while at < len(data):
        offset, size, epoch = struct.unpack_from(">qii", data, at)
        found.append((offset, epoch, struct.unpack_from(">q", data, at + 35)[0]))
        at += 12 + size
    return found


def put_local(root: Path, folder: Path) -> None:
    """Store the segments of a partition folder as Kafka's ``LocalTieredStorage`` does."""
    target = root / "kafka-tiered-storage" / f"{folder.name}-{TOPIC_ID}"
    target.mkdir(parents=True)
    logs = sorted(folder.glob("*.log"))
    snapshots = sorted(folder.glob("*.snapshot"))
    for number, log in enumerate(logs):
        files = {kind: log.with_suffix(f".{kind}") for kind in ("log", "index", "timeindex")}
        files["txnindex"] = log.with_suffix(".txnindex")
        files["leader_epoch_checkpoint"] = folder / "leader-epoch-checkpoint"
        later = [one for one in snapshots if int(one.stem) > int(log.stem)]
        files |= {"snapshot": later[0]} if later else {}
        for suffix, file in files.items():
            if file.exists():
                name = f"{log.stem}-{segment_id(number)}.{suffix}"
                data = file.read_bytes()
                if suffix == "leader_epoch_checkpoint":
                    following = [int(one.stem) for one in logs[number + 1 : number + 2]]
                    data = epochs_up_to(data, *following or [1 << 63])
                (target / name).write_bytes(data)
