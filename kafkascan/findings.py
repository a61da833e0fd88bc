"""What checks find: facts about data, not exceptions."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """How bad a finding is."""

    NOTE = "note"
    """As it may be; worth knowing."""

    WARNING = "warning"
    """Not what a broker writes, but it does no harm."""

    ERROR = "error"
    """A reader that trusts it gets wrong answers."""


@dataclass(frozen=True)
class Finding:
    """
    One thing that a check found.

    Attributes
    ----------
    symbol : str
        Its greppable name.
    severity : Severity
    message : str
        One sentence.
    row : int or None
        Of the table that was checked.
    position : int or None
        Byte position of that row in its file.
    """

    symbol: str
    severity: Severity
    message: str
    row: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        place = "" if self.position is None else f"position {self.position}: "
        return f"{self.severity}: {place}{self.message} [{self.symbol}]"


@dataclass(frozen=True)
class BatchFinding(Finding):
    """
    Why a broker would refuse a batch.

    Attributes
    ----------
    exception : str
        What Kafka throws, such as ``InvalidRecordException``.
    offset : int or None
        Of the first record that is meant; None if it is the batch.
    count : int
        How many records of the batch are meant, or 1 for the batch.
    """

    exception: str = ""
    offset: int | None = None
    count: int = 1
