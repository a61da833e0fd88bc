"""Kafka's batch builder, readers and log appends, through Building.java."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from tests.oracle.jvm import Closing, JsonProgram, java_command
from tests.oracle.rebuild import LoadArguments
from tests.support.batch_jobs import BatchJob, Control, Step


class Building(Closing):
    """A JVM with Kafka's record and log classes."""

    def __init__(self, class_path: str, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        command = java_command(class_path, "kafkascan.oracle.Building", heap="512m")
        self._program = JsonProgram(command, directory / "building.log")

    def close(self) -> None:
        """End the JVM."""
        self._program.close()

    def build(self, job: BatchJob) -> dict[str, Any]:
        """
        Build a batch with `MemoryRecordsBuilder`.

        Returns
        -------
        dict
            "bytes" or "exception"; "info"; "steps": what the builder says after each step.
        """
        answer = self._program.call(
            "build",
            magic=job.magic,
            codec=job.codec,
            level=job.level,
            timestampType="LogAppendTime" if job.log_append_time is not None else "CreateTime",
            baseOffset=job.base_offset,
            logAppendTime=-1 if job.log_append_time is None else job.log_append_time,
            producerId=job.producer_id,
            producerEpoch=job.producer_epoch,
            baseSequence=job.base_sequence,
            isTransactional=job.is_transactional,
            isControl=job.is_control,
            partitionLeaderEpoch=job.partition_leader_epoch,
            writeLimit=job.write_limit,
            deleteHorizonMs=-1 if job.delete_horizon_ms is None else job.delete_horizon_ms,
            ratio=job.ratio,
            lastOffset=job.last_offset,
            steps=[_step(step) for step in job.steps],
        )
        if "bytes" in answer:
            answer["bytes"] = base64.b64decode(answer["bytes"])
        return answer

    def read(self, data: bytes) -> dict[str, Any]:
        """
        Read batches, each of which has to be valid, and all of their records.

        Returns
        -------
        dict
            "batches": what `BatchFields` says; "records": (offset, timestamp, sequence, key,
            value, headers); "exception", or "validBytes".
        """
        answer = self._program.call("read", bytes=_encoded(data))
        answer["records"] = [_record(record) for record in answer["records"]]
        return answer

    def append(
        self, directory: Path, batches: Path, arguments: LoadArguments, *, segment_ms: int
    ) -> dict[str, Any]:
        """Append the batches of a file to a log one by one; close the log."""
        return self._program.call(
            "append",
            directory=str(directory),
            batches=str(batches),
            segmentMs=segment_ms,
            **arguments.as_json(),
        )


def _step(step: Step | Control) -> dict[str, Any]:
    if isinstance(step, Control):
        return {
            "kind": step.kind.name,
            "timestamp": step.timestamp,
            "version": step.value.get("version", 0),
            "value": _camel_cased(step.value),
        }
    return {
        "offset": step.offset,
        "timestamp": step.timestamp,
        "key": _encoded(step.key),
        "value": _encoded(step.value),
        "headers": [(_encoded(key), _encoded(value)) for key, value in step.headers],
    }


def _camel_cased(value: Any) -> Any:
    """Return a message in the form of Kafka's JSON converters."""
    if isinstance(value, dict):
        return {_name(name): _camel_cased(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_camel_cased(one) for one in value]
    if hasattr(value, "bytes"):  # a UUID
        return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
    return value


def _name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _decoded(data: str | None) -> bytes | None:
    return None if data is None else base64.b64decode(data)


def _record(fields: list[Any]) -> tuple[Any, ...]:
    offset, timestamp, sequence, key, value, headers = fields
    pairs = [(_decoded(key), _decoded(value)) for key, value in headers]
    return offset, timestamp, sequence, _decoded(key), _decoded(value), pairs
