"""Kafka's setters, cleaner, appends and conversions, through Rebuild.java and Convert.java."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import Any

from tests.oracle.jvm import Closing, JsonProgram, java_command


class RefusedError(Exception):
    """Kafka threw: `kind` is the exception's simple name."""

    def __init__(self, described: dict[str, Any]) -> None:
        super().__init__(described["class"], described["message"])
        self.kind: str = described["class"].rpartition(".")[2]
        self.cause: dict[str, Any] | None = described.get("cause")
        self.message: str = str(described["message"])


class Rewrites(Closing):
    """Two JVMs: the current Kafka, and the last one that converts between formats."""

    def __init__(self, broker: str, conversion: str, directory: Path) -> None:
        self._directory = directory
        main = "kafkascan.oracle."
        self._broker = JsonProgram(
            java_command(broker, main + "Rebuild", heap="512m"), directory / "rewrites.log"
        )
        self._conversion = JsonProgram(
            java_command(conversion, main + "Convert"), directory / "conversion.log"
        )

    def close(self) -> None:
        """End the JVMs."""
        self._broker.close()
        self._conversion.close()

    def restamp(self, data: bytes, **values: list[int]) -> bytes:
        """Call Kafka's setters with a value for each batch: `lastOffsets`, `leaderEpochs`, …."""
        return _bytes(self._broker.call("restamp", data=_text(data), **values))

    def filter(self, data: bytes, dropped: list[int], **options: Any) -> bytes:
        """Drop the records at offsets with `MemoryRecords.filterTo`."""
        return _bytes(self._broker.call("filter", data=_text(data), dropped=dropped, **options))

    def append(self, data: bytes, origin: str, **options: Any) -> bytes:
        """Append to an empty log as a leader, or a follower (REPLICATION); return its bytes."""
        directory = Path(tempfile.mkdtemp(dir=self._directory)) / "t-0"
        answer = self._broker.call(
            "verdict", data=_text(data), origin=origin, directory=str(directory), **options
        )
        return _bytes(answer | {"data": answer.get("log", "")})

    def down_convert(self, data: bytes, to_magic: int) -> bytes:
        """Convert as for an old consumer (`RecordsUtil.downConvert`)."""
        return _bytes(self._conversion.call("down", data=_text(data), toMagic=to_magic))

    def up_convert(self, data: bytes, to_magic: int = 2, **options: Any) -> bytes:
        """Convert as for an old producer (`LogValidator`), into one batch."""
        return _bytes(self._conversion.call("up", data=_text(data), toMagic=to_magic, **options))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(answer: dict[str, Any]) -> bytes:
    if "exception" in answer:
        raise RefusedError(answer["exception"])
    return base64.b64decode(answer["data"])
