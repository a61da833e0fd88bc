"""Kafka's segment recovery, log loading and lookups, through Rebuild.java."""

from __future__ import annotations

import base64
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.oracle.jvm import Closing, JsonProgram, java_command

Files = dict[str, bytes]
"""The files of a partition directory by their names."""


@dataclass(frozen=True)
class LoadArguments:
    """A broker's state about a log outside its directory."""

    clean_shutdown: bool = False
    """Whether `.kafka_cleanshutdown` existed."""
    recovery_point: int = 0
    """From `recovery-point-offset-checkpoint`: offsets below it were flushed."""
    log_start_offset: int = 0
    """From `log-start-offset-checkpoint`."""
    is_tiered: bool = False
    """`remote.storage.enable` of the topic, and of the broker."""
    interval_bytes: int = 4096
    """`index.interval.bytes`."""
    max_index_bytes: int = 4096
    """`segment.index.bytes`: the preallocated size of the active segment's indexes."""
    segment_bytes: int = 1 << 30
    """`segment.bytes`."""
    preallocate: bool = False
    """`preallocate`, of the log itself."""
    now: int | None = None
    """The time in milliseconds at which producers expire; None is the real time."""
    producer_id_expiration_ms: int = 86_400_000
    """`producer.id.expiration.ms`."""
    delete_delay_ms: int = 0
    """`file.delete.delay.ms`; 0 also deletes the files renamed to `.deleted`."""

    def as_json(self) -> dict[str, Any]:
        """Return the arguments under the names of Rebuild.java."""
        return {_camel_case(name): value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Outcome:
    """The result of Kafka's work on a directory."""

    answer: dict[str, Any]
    """What Rebuild.java says: offsets, "exception" (of loading), "closingException", "messages"
    (Kafka's own log lines)."""
    files: Files
    """The resulting files; after a load, those after the log was closed."""
    loaded: Files | None = None
    """The files between loading and closing; None if loading failed."""

    @property
    def is_refused(self) -> bool:
        """Whether loading threw: a broker would not start with this directory."""
        return "exception" in self.answer

    @property
    def recovered(self) -> list[int]:
        """Return the base offsets of the segments that were recovered as not flushed."""
        found = (
            re.search(r"Recovering unflushed segment (\d+)", m) for m in self.answer["messages"]
        )
        return [int(one[1]) for one in found if one]


class Rebuild(Closing):
    """A JVM with Kafka's storage classes; `is_measured` optimizes for speed."""

    def __init__(
        self, class_path: str, directory: Path, *, is_measured: bool = False, heap: str = "512m"
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        main = "kafkascan.oracle.Rebuild"
        command = java_command(class_path, main, heap=heap, is_measured=is_measured)
        self._directory = directory
        self._program = JsonProgram(command, directory / "rebuild.log")

    def close(self) -> None:
        """End the JVM."""
        self._program.close()

    def segment(
        self,
        directory: Path,
        base_offset: int,
        arguments: LoadArguments = LoadArguments(),
        *,
        repeat: int = 0,
    ) -> dict[str, Any]:
        """Rebuild a segment's files in place with `LogSegment.recover`.

        With `repeat`, that many copies are rebuilt and the directory stays as it is: "medianMs"
        and "minMs" of the answer are milliseconds of `LogSegment.recover` alone.
        """
        return self._call("segment", directory, arguments, repeat, baseOffset=base_offset)

    def load(
        self, directory: Path, arguments: LoadArguments = LoadArguments(), *, repeat: int = 0
    ) -> dict[str, Any]:
        """Load a log in place with `UnifiedLog.create`; close it as a broker does.

        The state in between is kept in `<directory>.loaded`. With `repeat`, as `segment`: what is
        measured is `UnifiedLog.create`.
        """
        return self._call("load", directory, arguments, repeat)

    def truncate(
        self,
        directory: Path,
        offset: int,
        batches: bytes = b"",
        arguments: LoadArguments = LoadArguments(),
    ) -> Path:
        """
        Load a log in place, truncate it and append batches, as a follower does; then close it.

        Returns
        -------
        Path
            A copy of the directory before it was closed, as a running broker has it.
        """
        data = base64.b64encode(batches).decode()
        self._call("truncate", directory, arguments, 0, offset=offset, data=data)
        return directory.with_name(f"{directory.name}.truncated")

    def epoch_ends(
        self, directory: Path, epochs: Sequence[int], log_end: int
    ) -> list[tuple[int, int]]:
        """Return epochs and end offsets by ``leader-epoch-checkpoint``, for the epochs asked."""
        answer = self._call(
            "epochs", directory, LoadArguments(), 0, epochs=list(epochs), logEnd=log_end
        )
        return [(epoch, end) for epoch, end in answer["ends"]]

    def are_within(self, cases: Sequence[dict[str, Any]]) -> list[bool]:
        """
        Return whether remote segments belong to logs.

        Parameters
        ----------
        cases
            "first" and "last" offset and "segment" (epochs and their first offsets) of a segment,
            and "log" (those of a log).
        """
        verdicts: list[bool] = self._program.call("lineage", cases=list(cases))["verdicts"]
        return verdicts

    def lookup(
        self,
        directory: Path,
        arguments: LoadArguments = LoadArguments(clean_shutdown=True),
        *,
        offsets: Sequence[int] = (),
        timestamps: Sequence[int] = (),
        segment_timestamps: Sequence[tuple[int, int]] = (),
        aborted: Sequence[tuple[int, int]] = (),
        repeat: int = 0,
    ) -> dict[str, Any]:
        """Load a copy of a log and look up offsets and timestamps.

        Parameters
        ----------
        directory
            Is left as it is.
        arguments
            How it is loaded.
        offsets
            Asked of their segment ("translated": base offset, position, size of the batch;
            "segmentRead" and "logRead": segment, position, size of the smallest fetch;
            "indexEntry": offset, position).
        timestamps
            Asked of the log: timestamp, offset, leader epoch; -1 to -5 as in ListOffsets.
        segment_timestamps
            Pairs of a timestamp and a starting offset, asked of every segment.
        aborted
            Pairs of a first offset and one past the last: the aborted transactions in between,
            as producer id, first offset, last offset, last stable offset.
        repeat
            Ask all that often: "offsetNs" and "timestampNs" are nanoseconds per question.
        """
        questions = {
            "offsets": list(offsets),
            "timestamps": list(timestamps),
            "segmentTimestamps": list(segment_timestamps),
            "aborted": list(aborted),
        }
        return self._call("lookup", self.copy_of(directory), arguments, repeat, **questions)

    def consume(
        self,
        directory: Path,
        max_bytes: int,
        arguments: LoadArguments = LoadArguments(clean_shutdown=True),
    ) -> dict[str, Any]:
        """
        Load a copy of a log, and read it from its start to its end in fetches of a size.

        Returns
        -------
        dict
            "records" are pairs of offset and value; "fetches" are triples of position, base offset
            of the segment, and next position; "position" is where the consumer stops, and
            "outOfRange" is there if the log ends before it.
        """
        return self._call("consume", self.copy_of(directory), arguments, 0, maxBytes=max_bytes)

    def outcome_of_segment(
        self, directory: Path, base_offset: int, arguments: LoadArguments = LoadArguments()
    ) -> Outcome:
        """Rebuild a segment in a copy of its directory."""
        copy = self.copy_of(directory)
        return Outcome(self.segment(copy, base_offset, arguments), read_files(copy))

    def outcome_of_load(
        self, directory: Path, arguments: LoadArguments = LoadArguments()
    ) -> Outcome:
        """Load a copy of a directory."""
        copy = self.copy_of(directory)
        answer = self.load(copy, arguments)
        loaded = copy.with_name(f"{copy.name}.loaded")
        return Outcome(answer, read_files(copy), read_files(loaded) if loaded.exists() else None)

    def expected_after_load(self, directory: Path, **arguments: Any) -> Files:
        """Return the files after Kafka loaded and closed a copy; see LoadArguments."""
        return self.outcome_of_load(directory, LoadArguments(**arguments)).files

    def expected_after_segment(self, directory: Path, base_offset: int, **arguments: Any) -> Files:
        """Return the files after `LogSegment.recover` in a copy; see LoadArguments."""
        return self.outcome_of_segment(directory, base_offset, LoadArguments(**arguments)).files

    def copy_of(self, directory: Path) -> Path:
        """Copy a directory and keep its name, which is its partition's."""
        scratch = Path(tempfile.mkdtemp(dir=self._directory))
        return shutil.copytree(directory, scratch / directory.name)

    def _call(
        self, command: str, directory: Path, arguments: LoadArguments, repeat: int, **more: object
    ) -> dict[str, Any]:
        repetitions = {"repeat": repeat} if repeat else {}
        everything = {**arguments.as_json(), **repetitions, **more}
        return self._program.call(command, directory=str(directory), **everything)


def read_files(directory: Path) -> Files:
    """Return all files of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
