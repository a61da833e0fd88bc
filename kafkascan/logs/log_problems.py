"""What is a problem of a log that is read as a whole: the one place that decides it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kafkascan.format.findings import Severity
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.opened_logs import SegmentOverlap
from kafkascan.tables.table import Problem, Problems, problem_of


class LogProblems:
    """Collects the problems of logs while they are read; each is listed once."""

    def __init__(self) -> None:
        self._found: dict[Problem, None] = {}

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        self._found.setdefault(problem)

    def add_error(self, partition: PartitionDir, path: Path, error: Exception) -> None:
        """Add the error after which a segment or a log was not read."""
        topic, number = partition.topic, partition.partition
        self.add(problem_of(error, str(path), topic=topic, partition=number))

    def add_overlaps(self, partition: PartitionDir, overlaps: Iterable[SegmentOverlap]) -> None:
        """Add segments with the same offsets: which of them a consumer gets is a guess."""
        for one in overlaps:
            self.add(
                Problem(
                    "OFFSET_OVERLAP",
                    one.reason,
                    str(one.path),
                    Severity.WARNING,
                    topic=partition.topic,
                    partition=partition.partition,
                    rows_missing=False,
                )
            )

    @property
    def found(self) -> Problems:
        """The problems so far."""
        return Problems(self._found)
