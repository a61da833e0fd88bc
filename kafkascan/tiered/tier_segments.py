"""What a listing of remote storage says: segments, and objects that are none."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafkascan.tiered.tier_files import TierFile


def can_be_a_segment(base_offset: str, partition: str) -> bool:
    """Return whether the numbers in a name are an offset and a partition that Kafka can have."""
    return int(base_offset) < 1 << 63 and int(partition) < 1 << 31


@dataclass(frozen=True, eq=False)
class TierSegment:
    """
    A segment in remote storage.

    Attributes
    ----------
    topic : str
    topic_id : str or None
        As ``Uuid.toString`` prints it; None if the layout does not have it.
    partition : int
    base_offset : int
    segment_id : str or None
        Each upload has another one.
    end_offset : int or None
        The last offset, if the layout says it.
    max_timestamp : int or None
        In milliseconds.
    event_timestamp : int or None
        When the upload began, in milliseconds.
    leader_epochs : tuple of (int, int)
        Epochs, and the first offset of each; empty if the layout does not say them.
    stored_size : int
        Bytes of the objects.
    is_compressed, is_encrypted : bool
    log : TierFile
    side_files : dict of str to TierFile
        By kind: ``index``, ``timeindex``, ``txnindex``, ``snapshot`` (as of the end of the
        segment), ``leader-epoch-checkpoint``.
    """

    topic: str
    topic_id: str | None
    partition: int
    base_offset: int
    segment_id: str | None
    log: TierFile = field(repr=False)
    side_files: dict[str, TierFile] = field(repr=False)
    stored_size: int
    end_offset: int | None = None
    max_timestamp: int | None = None
    event_timestamp: int | None = None
    leader_epochs: tuple[tuple[int, int], ...] = ()
    is_compressed: bool = False
    is_encrypted: bool = False

    @property
    def size(self) -> int:
        """Size of the log, in bytes, as a broker has it on disk."""
        return self.log.size


@dataclass(frozen=True)
class TierProblem:
    """
    Something in remote storage that is not read as a segment, or contradicts the rest.

    Attributes
    ----------
    symbol : str
        ``NOT_UPLOADED`` (a log without a manifest), ``MISSING_OBJECT`` (a manifest without its
        log or indexes), ``BAD_MANIFEST``, ``MISSING_KEY``, ``SIZE_MISMATCH``, ``OTHER_COPY``
        (another upload of the same offsets is read instead), ``UNKNOWN_OBJECT``,
        ``MANIFEST_MISMATCH`` (the offsets of a manifest).
    key : str
        The object.
    reason : str
    """

    symbol: str
    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason} [{self.symbol}]"


@dataclass
class TierContent:
    """
    The segments and problems of a listing.

    Attributes
    ----------
    segments : list of TierSegment
    problems : list of TierProblem
    """

    segments: list[TierSegment] = field(default_factory=list)
    problems: list[TierProblem] = field(default_factory=list)

    def add_problem(self, symbol: str, key: str, reason: str) -> None:
        """Note a problem of an object."""
        self.problems.append(TierProblem(symbol, key, reason))
