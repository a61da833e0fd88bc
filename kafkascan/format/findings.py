"""Findings of checks: results about data, not exceptions."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Severity(enum.StrEnum):
    """Severity of a finding."""

    NOTE = "note"
    """No action needed."""

    WARNING = "warning"
    """A broker would not write it, but it does no harm."""

    ERROR = "error"
    """A reader that relies on it gets wrong results."""


WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
"""The order in which findings are shown."""


@dataclass(frozen=True)
class Finding:
    """
    One result of a check.

    Attributes
    ----------
    symbol : str
        Greppable name of the kind of finding.
    severity : Severity
    message : str
        One sentence.
    row : int or None
        Row of the table that was checked.
    position : int or None
        Byte position of that row in its file.
    count : int
        Number of rows that it is about.
    """

    symbol: str
    severity: Severity
    message: str
    row: int | None = None
    position: int | None = None
    count: int = field(default=1, kw_only=True)

    def __str__(self) -> str:
        place = "" if self.position is None else f"position {self.position}: "
        return f"{self.severity}: {place}{self.message} [{self.symbol}]"


@dataclass(frozen=True)
class BatchFinding(Finding):
    """
    A reason for which a broker would reject a batch.

    Attributes
    ----------
    exception : str
        The exception that Kafka throws, such as ``InvalidRecordException``.
    offset : int or None
        Offset of the first affected record; None if the whole batch is affected.
    count : int
        Number of affected records; 1 if the whole batch is affected.
    """

    exception: str = ""
    offset: int | None = None
