"""What an audit finds: its words, how bad each of them is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkascan import arrow
from kafkascan.findings import Severity

if TYPE_CHECKING:
    import pyarrow as pa

NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR
_REBUILD = "stop the broker and run `kafkascan recover --write`, or delete the file: it is rebuilt"
_SALVAGE = "take the replica of another broker, or keep what is whole; a recovering broker gives"


class Word(NamedTuple):
    """How bad a finding is, and what to do about it."""

    severity: Severity
    advice: str


WORDS: dict[str, Word] = {
    # ---- bytes ----
    "BAD_CRC": Word(ERROR, f"{_SALVAGE} up all that follows"),
    "CORRUPT": Word(ERROR, f"{_SALVAGE} up all that follows"),
    "UNREADABLE": Word(ERROR, "look at the file's permissions and at the disk"),
    "TORN_TAIL": Word(
        WARNING, "a broker cuts it off when it recovers the log; of a backup, copy it again"
    ),
    "CUT_SEGMENT": Word(ERROR, f"{_SALVAGE} up all segments that follow"),
    "ZERO_TAIL": Word(NOTE, "preallocated; a broker that is shut down cleanly cuts it off"),
    "BAD_COUNT": Word(ERROR, "consumers fail at this batch; take the replica of another broker"),
    "UNKNOWN_CODEC": Word(ERROR, "no consumer can read this batch; look for who wrote it"),
    "BAD_RECORDS": Word(ERROR, "consumers fail at this batch; skip it by seeking behind it"),
    "OVERSIZED_BATCH": Word(NOTE, "consumers need fetch.max.bytes, followers replica.fetch sizes"),
    "OLD_FORMAT": Word(
        NOTE, "rewrite them (compact, or mirror the topic) before readers of it go away"
    ),
    # ---- offsets and epochs ----
    "ENDS_EARLY": Word(ERROR, "its end is lost; take the replica of another broker"),
    "OFFSET_GAP": Word(WARNING, "compare with another replica: records may have been lost there"),
    "OFFSET_OVERLAP": Word(ERROR, "brokers empty such a segment when they recover it"),
    "OFFSET_OUT_OF_SEGMENT": Word(ERROR, "the file has a wrong name, or is of another log"),
    "EPOCH_BACKWARDS": Word(ERROR, "the log has diverged; take the replica of another broker"),
    "EPOCH_MISMATCH": Word(ERROR, "delete leader-epoch-checkpoint: a recovery builds it anew"),
    "EPOCHS_BEHIND": Word(NOTE, "a broker that was killed; its recovery adds what is missing"),
    "BAD_CHECKPOINT": Word(ERROR, "a broker does not start with it; a recovery builds it anew"),
    # ---- times ----
    "FUTURE_TIMESTAMP": Word(
        WARNING, "set retention.bytes, or delete records up to there; mind the producer's clock"
    ),
    "PAST_TIMESTAMP": Word(WARNING, "retention by time takes such a segment early"),
    "MAX_TIMESTAMP_MISMATCH": Word(ERROR, "lookups by time miss records, and retention is wrong"),
    # ---- files beside logs ----
    "MISSING_INDEX": Word(NOTE, "a broker builds it anew when it starts"),
    "ORPHAN": Word(WARNING, "it belongs to no segment; a broker deletes it when it starts"),
    "LEFTOVER": Word(NOTE, "a broker takes it away, or in, when it starts"),
    "DROPPED_LOG": Word(NOTE, "nothing to do: a broker is about to delete it, or to move it"),
    "TXN_INDEX_MISMATCH": Word(ERROR, _REBUILD),
    "BAD_SNAPSHOT": Word(ERROR, _REBUILD),
    "SNAPSHOT_MISMATCH": Word(ERROR, _REBUILD),
    "PADDED": Word(NOTE, "preallocated; a broker that is shut down cleanly cuts it off"),
    "INCOMPLETE": Word(NOTE, "as of a segment that is written to"),
    # ---- producers and transactions ----
    "SEQUENCE_GAP": Word(WARNING, "records of this producer are missing; compare replicas"),
    "DUPLICATE_SEQUENCE": Word(WARNING, "records may be there twice"),
    "FENCED_PRODUCER": Word(WARNING, "a zombie's batches were appended; look at its records"),
    "BAD_MARKER": Word(ERROR, "a broker refuses to load the log; take another replica"),
    "HANGING_TRANSACTION": Word(WARNING, "end it with the command, if no coordinator knows it"),
    "EMPTY_TRANSACTIONS": Word(NOTE, "markers whose records were never there, or are gone"),
    "MANY_PRODUCERS": Word(
        WARNING, "let clients keep their producers; lower producer.id.expiration.ms"
    ),
    "COMPACTION": Word(NOTE, "as it may be"),
}
_OF_INDEXES = Word(ERROR, _REBUILD)


@dataclass(frozen=True)
class LogFinding:
    """
    One thing that an audit found.

    Attributes
    ----------
    symbol : str
        Its greppable name.
    severity : Severity
    topic : str or None
    partition : int or None
    path : str
        Of the file, or of the folder, that it is about.
    file : str or None
        Name of the file; None for a whole log.
    position : int or None
        Byte position of the first place in the file.
    offset : int or None
        Of the first place in the log.
    count : int
        How many such places there are in the file.
    message, advice : str
        One sentence each.
    """

    symbol: str
    severity: Severity
    topic: str | None
    partition: int | None
    path: str
    file: str | None
    position: int | None
    offset: int | None
    count: int
    message: str
    advice: str

    def __str__(self) -> str:
        place = "" if self.position is None else f" position {self.position}:"
        more = "" if self.count == 1 else f" ({self.count:,} times)"
        return f"{self.path}:{place} {self.severity}: {self.message}{more} [{self.symbol}]"


def word(symbol: str) -> Word:
    """Return how bad a finding is; what is not listed is what an index's check says."""
    return WORDS.get(symbol, _OF_INDEXES)


FINDING_COLUMNS = (
    "severity", "symbol", "topic", "partition", "file", "position", "offset", "count",
    "message", "advice", "path",
)  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """
    What an audit of some logs found; what `audit` returns.

    Attributes
    ----------
    path : pathlib.Path
    findings : list of LogFinding
        In the order of the logs.
    logs, segments, batches, size_in_bytes : int
        What was looked at.
    """

    path: Path
    findings: list[LogFinding] = field(default_factory=list)
    logs: int = 0
    segments: int = 0
    batches: int = 0
    size_in_bytes: int = 0

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def alarms(self) -> list[LogFinding]:
        """Those that are more than notes."""
        return [one for one in self.findings if one.severity is not NOTE]

    def only_alarms(self) -> Audit:
        """Return the same without notes."""
        return replace(self, findings=self.alarms)

    @property
    def is_healthy(self) -> bool:
        """Whether there are no more than notes."""
        return not self.alarms

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the table as lists."""
        columns: dict[str, list[Any]] = {
            name: [getattr(one, name) for one in self.findings] for name in FINDING_COLUMNS
        }
        columns["severity"] = [str(one) for one in columns["severity"]]
        return columns

    def to_arrow(self) -> pa.Table:
        """Return the table as Arrow's."""
        pa = arrow.require_pyarrow()
        numbers = {"partition": pa.int32(), "position": pa.int64(), "offset": pa.int64(),
                   "count": pa.int64()}  # fmt: skip
        columns = self.to_columns()
        return pa.table(
            {name: pa.array(of, numbers.get(name, pa.string())) for name, of in columns.items()}
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's PyCapsule stream of `to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        seen = (
            f"{self.logs:,} logs, {self.segments:,} segments, {self.batches:,} batches,"
            f" {self.size_in_bytes:,} bytes"
        )
        return "\n".join([f"<Audit {self.path}: {seen}>", *(f"  {one}" for one in self.findings)])


@dataclass
class Spot:
    """Places of one kind in one file, as they are gathered: the first of them counts."""

    position: int | None
    offset: int | None
    message: str
    count: int = 0
    severity: Severity | None = None


@dataclass
class FoundInLog:
    """What is found in one log: by file, what each kind of finding is and how often it is there."""

    spots: dict[tuple[str | None, str], Spot] = field(default_factory=dict)

    def add(
        self,
        symbol: str,
        file: str | None,
        message: str,
        *,
        position: int | None = None,
        offset: int | None = None,
        count: int = 1,
        severity: Severity | None = None,
    ) -> None:
        """Note something; of several of a kind in a file, the first is told."""
        fresh = Spot(position, offset, message, severity=severity)
        spot = self.spots.setdefault((file, symbol), fresh)
        spot.count += count

    def findings(self, topic: str | None, partition: int | None, folder: Path) -> list[LogFinding]:
        """Return them by file; what is about the whole log comes first."""
        found = []
        for (file, symbol), spot in self.spots.items():
            severity, advice = word(symbol)
            found.append(
                LogFinding(
                    symbol=symbol,
                    severity=spot.severity or severity,
                    topic=topic,
                    partition=partition,
                    path=str(folder if file is None else folder / file),
                    file=file,
                    position=spot.position,
                    offset=spot.offset,
                    count=spot.count,
                    message=spot.message,
                    advice=advice,
                )
            )
        return sorted(
            found, key=lambda one: (one.file or "", one.position is not None, one.position or 0)
        )
