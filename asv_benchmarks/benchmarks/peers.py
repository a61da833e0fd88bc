"""Other readers, called on the bytes of a segment as their own code calls them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import crc32c as crc32c_package
import numpy as np

JAVA = Path(__file__).parents[2] / "tests" / "oracle" / "java" / "target"
DUMP = JAVA.parents[1] / "java-dump" / "target"


def aiokafka_walk(log: bytes) -> int:
    """Walk with aiokafka's C extension."""
    from aiokafka.record._crecords import MemoryRecords

    return _walk(MemoryRecords(log))


def kafka_python_walk(log: bytes) -> int:
    """Walk with kafka-python."""
    from kafka.record.memory_records import MemoryRecords

    return _walk(MemoryRecords(log))


def _walk(records: object) -> int:
    count = 0
    while records.has_next():
        records.next_batch()
        count += 1
    return count


def aiokafka_verify(log: bytes) -> int:
    """Verify with aiokafka's C extension."""
    from aiokafka.record._crecords import MemoryRecords

    return _verify(MemoryRecords(log))


def kafka_python_verify(log: bytes) -> int:
    """Verify with kafka-python, which uses the crc32c package where it is installed."""
    from kafka.record.memory_records import MemoryRecords

    return _verify(MemoryRecords(log))


def _verify(records: object) -> int:
    count = 0
    while records.has_next():
        count += records.next_batch().validate_crc()
    return count


def crc32c_package_verify(log: bytes, batches: np.ndarray) -> int:
    """Sum each batch with the crc32c package, given where they lie."""
    view = memoryview(log)
    positions = batches["position"].tolist()
    lengths = batches["batch_length"].tolist()
    stored = batches["crc"].tolist()
    return sum(
        crc32c_package.crc32c(view[position + 21 : position + 12 + length]) == crc
        for position, length, crc in zip(positions, lengths, stored, strict=True)
    )


def aiokafka_records(log: bytes) -> int:
    """Touch offset, timestamp, key and value of every record with aiokafka's C extension."""
    from aiokafka.record._crecords import MemoryRecords

    records = MemoryRecords(log)
    seen = 0
    while records.has_next():
        for record in records.next_batch():
            seen += record.offset + record.timestamp + len(record.key) + len(record.value)
    return seen


def aiokafka_build(columns: dict[str, list], records_per_batch: int) -> list[bytearray]:
    """Build batches with aiokafka's C extension, of columns that are lists."""
    from aiokafka.record._crecords import DefaultRecordBatchBuilder

    batches = []
    rows = list(zip(*(columns[name] for name in ("timestamp", "key", "value"))))  # noqa: B905
    for first in range(0, len(rows), records_per_batch):
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
        for offset, (timestamp, key, value) in enumerate(rows[first : first + records_per_batch]):
            builder.append(offset, timestamp, key, value, [])
        batches.append(builder.build())
    return batches


def java_records(path: Path) -> dict[str, float]:
    """Seconds in which Kafka's own classes touch every record over a map."""
    if not (JAVA / "oracle.jar").exists():
        return {}
    class_path = f"{JAVA}/oracle.jar:{JAVA}/lib/*"
    command = ["java", "-Xmx1g", "-cp", class_path, "kafkascan.oracle.Speed", str(path), "records"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"Kafka's Java iterator over a map": float(result.stdout)}


def java(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of Kafka's own classes over a map, for a walk and for a verification."""
    if not (JAVA / "oracle.jar").exists():
        return {}, {}
    class_path = f"{JAVA}/oracle.jar:{JAVA}/lib/*"
    command = ["java", "-Xmx1g", "-cp", class_path, "kafkascan.oracle.Speed", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    walk, verify = map(float, result.stdout.split())
    name = "Kafka's Java classes over a map"
    return {name: walk}, {name: verify}


def dump_log_is_there() -> bool:
    """Whether `make oracle` has built Kafka's tools."""
    return (DUMP / "oracle-dump.jar").exists() and shutil.which("java") is not None


def dump_log(path: Path, *options: str) -> None:
    """Run kafka-dump-log; without options, it prints batch headers, which `FileRecords` reads."""
    command = ["java", "-cp", f"{DUMP}/lib/*", "org.apache.kafka.tools.DumpLogSegments", *options]
    subprocess.run([*command, "--files", str(path)], stdout=subprocess.DEVNULL, check=True)


_RECOVERY_ARGUMENTS = {
    "cleanShutdown": False, "recoveryPoint": 0, "logStartOffset": 0, "intervalBytes": 4096,
    "maxIndexBytes": 10 << 20, "segmentBytes": 1 << 30, "preallocate": False,
    "now": 1_714_000_000_000, "producerIdExpirationMs": 86_400_000, "deleteDelayMs": 0,
}  # fmt: skip


class JavaRecovery:
    """Kafka's own recovery in a JVM that is warmed up; there only if `make oracle` has built it."""

    def __init__(self) -> None:
        self.is_there = (JAVA / "oracle.jar").exists()
        if self.is_there:
            command = ["java", "-Xmx2g", "-cp", f"{JAVA}/oracle.jar:{JAVA}/lib/*"]
            self._process = subprocess.Popen(
                [*command, "kafkascan.oracle.Rebuild"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def segment(self, directory: Path, repeat: int) -> float:
        """Return the median seconds of `LogSegment.recover` of a partition's first segment."""
        return self._seconds("segment", directory, repeat, baseOffset=0)

    def load(self, directory: Path, repeat: int) -> float:
        """Return the median seconds of `UnifiedLog.create` of a partition; its copies stay."""
        return self._seconds("load", directory, repeat, keep=True)

    def _seconds(self, command: str, directory: Path, repeat: int, **more: object) -> float:
        job = {"command": command, "directory": str(directory), "repeat": repeat}
        self._process.stdin.write(json.dumps(job | _RECOVERY_ARGUMENTS | more) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())["medianMs"] / 1e3

    def close(self) -> None:
        """End the JVM."""
        if self.is_there:
            self._process.kill()
            self._process.communicate()
