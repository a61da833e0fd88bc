"""Exceptions, and the conversion of statuses into exceptions.

Every exception is a `KafkaScanError` and also the built-in exception that it resembles. The
details of an error are attributes; its message contains file, byte position and reason, and
ends with a greppable symbol.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from kafkascan._core import layout as _layout
from kafkascan.format.shown_places import shown_url

if TYPE_CHECKING:
    import numpy as np

Error = TypeVar("Error", bound=BaseException)

# Subfolders that a message names.
_NAMED_FOLDERS = 5

SYMBOLS: dict[int, str] = {number: symbol for symbol, number, _ in _layout.statuses}
SENTENCES: dict[int, str] = {number: sentence for _, number, sentence in _layout.statuses}
STATUS: dict[str, int] = {symbol: number for symbol, number, _ in _layout.statuses}


class KafkaScanError(Exception):
    """Base of every exception that kafkascan defines."""


class CorruptLogError(KafkaScanError, ValueError):
    """
    The bytes of a log do not have the format that Kafka writes.

    Attributes
    ----------
    path : str
        The file, or a description of the bytes in memory.
    position : int
        Byte position in the source.
    base_offset : int or None
        The base offset field of the batch; None if the bytes end before it.
    reason : str
    symbol : str
        The greppable name of the reason, such as ``BAD_LENGTH``.
    """

    def __init__(
        self, path: str, position: int, base_offset: int | None, reason: str, symbol: str
    ) -> None:
        path = shown_url(path)
        super().__init__(path, position, base_offset, reason, symbol)
        self.path = path
        self.position = position
        self.base_offset = base_offset
        self.reason = reason
        self.symbol = symbol

    def __str__(self) -> str:
        batch = "" if self.base_offset is None else f" (base_offset {self.base_offset})"
        return f"{self.path}: position {self.position}{batch}: {self.reason} [{self.symbol}]"


class CorruptBatchError(CorruptLogError):
    """A batch header is damaged."""


class NotALogError(CorruptBatchError):
    """
    The file is of another kind: an index, a compressed file, a text. No batch was found.

    Parameters
    ----------
    path : str
    reason : str
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, 0, None, reason, "NOT_A_LOG")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason)


class UnsupportedMagicError(CorruptBatchError):
    """The magic byte is not 0, 1 or 2: damage, or a future format."""


class InvalidRecordError(CorruptBatchError):
    """Records contradict their batch header, or cannot be decompressed."""


class UnsupportedCompressionError(CorruptBatchError):
    """The format of the batch does not support the codec."""


class ChecksumMismatchError(CorruptBatchError):
    """The stored checksum of a batch differs from the checksum of its bytes."""


class CorruptIndexError(CorruptLogError):
    """Kafka would reject the index file."""


class CorruptSnapshotError(CorruptLogError):
    """Kafka would reject the producer snapshot."""


class CorruptCheckpointError(CorruptLogError):
    """Kafka would reject the checkpoint, metadata or properties file."""


class IndexOverflowError(KafkaScanError, OverflowError):
    """
    The offset or position of a batch exceeds what an index of its segment can hold.

    Attributes
    ----------
    row : int
        Index into the batch table.
    symbol : str
    path : str or None
        Path of the log, if it is known.
    position : int or None
        Position of the batch in that log.
    """

    def __init__(
        self,
        row: int,
        status: int,
        path: str | None = None,
        position: int | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(row, status, path, position, reason)
        self.row = row
        self.symbol = SYMBOLS[status]
        self.path = path
        self.position = position
        self._sentence = SENTENCES[status] if reason is None else reason

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}: position {self.position}: "
        return f"{where}batches[{self.row}]: {self._sentence} [{self.symbol}]"


class BatchTableError(KafkaScanError, ValueError):
    """
    A batch table does not belong to the source.

    Attributes
    ----------
    path : str
    row : int
        Index into the table.
    symbol : str
    position : int or None
        Position of the batch, if it is known.
    """

    def __init__(
        self, path: str, row: int, status: int, position: int | None = None, advice: str = ""
    ) -> None:
        super().__init__(path, row, status, position, advice)
        self.path = path
        self.row = row
        self.symbol = SYMBOLS[status]
        self.position = position
        self._sentence = f"{SENTENCES[status]}; {advice}" if advice else SENTENCES[status]

    def __str__(self) -> str:
        where = "" if self.position is None else f"position {self.position}: "
        return f"{self.path}: {where}batches[{self.row}]: {self._sentence} [{self.symbol}]"


class UnfitBatchError(KafkaScanError, ValueError):
    """
    A batch cannot have a header field that it was to get, or not that value.

    Attributes
    ----------
    path : str
    position : int
        Position of the batch.
    base_offset : int
    reason : str
    """

    def __init__(self, path: str, position: int, base_offset: int, reason: str) -> None:
        super().__init__(path, position, base_offset, reason)
        self.path = path
        self.position = position
        self.base_offset = base_offset
        self.reason = reason

    def __str__(self) -> str:
        batch = f"position {self.position} (base_offset {self.base_offset})"
        return f"{self.path}: {batch}: {self.reason} [UNFIT_BATCH]"


class RecordInputError(KafkaScanError, ValueError):
    """
    Kafka's format cannot represent the record, or Kafka's writers would reject it.

    Attributes
    ----------
    record : int
        Index of the record in the input.
    symbol : str
    """

    def __init__(self, record: int, status: int) -> None:
        super().__init__(record, status)
        self.record = record
        self.symbol = SYMBOLS[status]
        self._sentence = SENTENCES[status]

    def __str__(self) -> str:
        return f"records[{self.record}]: {self._sentence} [{self.symbol}]"


class UnknownColumnError(KafkaScanError, ValueError):
    """A column does not exist; the message suggests one."""


class ValueSchemaError(KafkaScanError, ValueError):
    """A schema of values cannot be read, or needs more than kafkascan allows."""


class UnknownOptionError(KafkaScanError, TypeError):
    """An option does not exist; the message suggests one."""


CHANGED_WHILE_READ = "CHANGED_WHILE_READ"
"""Symbol of a log or file that another process changed while it was read."""


class SourceReadError(KafkaScanError, OSError):
    """
    Bytes that existed when the source was opened can no longer be read.

    The file was truncated while it was being read, or its disk failed.

    Attributes
    ----------
    path : str
    position : int
        Position of a byte that could not be read.
    symbol : str
        ``SOURCE_FAULT``, or ``CHANGED_WHILE_READ`` if the file was truncated or replaced.
    """

    def __init__(self, path: str, position: int, reason: str, symbol: str = "SOURCE_FAULT") -> None:
        super().__init__(errno.EIO, reason)
        path = shown_url(path)
        self.filename = path
        self.path = path
        self.position = position
        self.reason = reason
        self.symbol = symbol

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.reason} [{self.symbol}]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.position, self.reason, self.symbol)


class FileChangedError(KafkaScanError, OSError):
    """
    Another process changed a file after it was read, so that it is not replaced or truncated.

    Attributes
    ----------
    path : str
    reason : str
    position : int or None
        Position of the first byte that was not there, or is no longer; None if it is not known.
    others : str
        What was done to other files before, as part of a sentence; may be empty.
    """

    def __init__(
        self, path: str, reason: str, position: int | None = None, others: str = ""
    ) -> None:
        super().__init__(errno.EBUSY, reason)
        self.filename = path
        self.path = path
        self.reason = reason
        self.position = position
        self.others = others

    def __str__(self) -> str:
        where = "" if self.position is None else f"position {self.position}: "
        others = f", but {self.others}" if self.others else ""
        return (
            f"{self.path}: {where}{self.reason} since it was read. It was left as it is{others}:"
            " stop what writes it, and run the command again [FILE_CHANGED]"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason, self.position, self.others)


class FileGoneError(KafkaScanError, FileNotFoundError):
    """
    A broker deleted, replaced or cut off a file of a log since its folder was listed.

    Attributes
    ----------
    path : str
    """

    symbol = "FILE_GONE"

    def __init__(self, path: str) -> None:
        reason = "the file was deleted, replaced or cut off since its folder was listed"
        super().__init__(errno.ENOENT, reason)
        self.filename = path
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} [{self.symbol}]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path,)


class RewriteError(KafkaScanError, RuntimeError):
    """The rewritten log failed verification; the original is unchanged."""


class LogDirInUseError(KafkaScanError, BlockingIOError):
    """
    A running broker, or another run of kafkascan, holds the lock of the data directory.

    Attributes
    ----------
    path : str
    """

    _REASON = "a running broker or another run of kafkascan holds its lock"

    def __init__(self, path: str) -> None:
        super().__init__(errno.EAGAIN, self._REASON)
        self.filename = path
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self._REASON} [LOG_DIR_IN_USE]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path,)


class SegmentWriterError(KafkaScanError, ValueError):
    """
    A `SegmentWriter` cannot be used any more: it is closed, or an earlier call failed.

    Attributes
    ----------
    path : str
        The folder that it was to write.
    reason : str
    symbol : str
        ``WRITER_FAILED`` or ``WRITER_CLOSED``.
    """

    def __init__(self, path: str, reason: str, symbol: str) -> None:
        super().__init__(path, reason, symbol)
        self.path = path
        self.reason = reason
        self.symbol = symbol

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} [{self.symbol}]"


class NoLogsError(KafkaScanError, FileNotFoundError):
    """
    A directory or archive contains no logs to read.

    Attributes
    ----------
    path : str
    reason : str
    elsewhere : tuple of str
        Subfolders that contain logs, relative to `path`.
    """

    def __init__(self, path: str, reason: str, elsewhere: tuple[str, ...] = ()) -> None:
        super().__init__(errno.ENOENT, reason)
        self.filename = path
        self.path = path
        self.reason = reason
        self.elsewhere = elsewhere

    def __str__(self) -> str:
        names = [repr(name) for name in self.elsewhere[:_NAMED_FOLDERS]]
        more = len(self.elsewhere) - len(names)
        names += [f"{more} more"] if more else []
        hint = f"; there are logs in {', '.join(names)}" if names else ""
        return f"{self.path}: {self.reason}{hint} [NO_LOGS]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.reason, self.elsewhere)


class DuplicateLogError(KafkaScanError, RuntimeError):
    """
    Two data directories contain the same log; a broker does not start with them.

    Attributes
    ----------
    path, other : str
        The directories of the partition.
    """

    def __init__(self, path: str, other: str) -> None:
        super().__init__(path, other)
        self.path = path
        self.other = other

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.other} is the same log, and a broker does not start with both."
            " Remove the directory of one of them [DUPLICATE_LOG]"
        )


class LinkedFileError(KafkaScanError, OSError):
    """
    A file that would be changed is a symbolic link, and its target may be anywhere.

    Attributes
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "the file is a symbolic link")
        self.filename = path
        self.path = path

    def __str__(self) -> str:
        return (
            f"{self.path}: the file is a symbolic link, and its target would be changed."
            " Replace the link by the file itself [LINKED_FILE]"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path,)


class ArchiveError(KafkaScanError, OSError):
    """
    A tar archive cannot be read without unpacking it.

    Attributes
    ----------
    path : str
    position : int
    reason : str
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(errno.EINVAL, reason)
        self.filename = path
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.reason} [BAD_ARCHIVE]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.position, self.reason)


class SourceInUseError(KafkaScanError, BufferError):
    """A source cannot be closed while a view of its bytes exists."""


def corrupt_batch_error(status: int, path: str, position: int, header: bytes) -> CorruptBatchError:
    """
    Return the error for a damaged batch header.

    Parameters
    ----------
    status : int
        Status of the walk.
    path : str
    position : int
    header : bytes
        The first 17 bytes at the position, which end with the magic byte.
    """
    wire = {name: offset for name, _, offset in _layout.batch_header}
    length_at, magic_at = wire["batch_length"], wire["magic"]
    base_offset = int.from_bytes(header[:length_at], "big", signed=True)
    length = int.from_bytes(header[length_at : length_at + 4], "big", signed=True)
    magic = int.from_bytes(header[magic_at : magic_at + 1], "big", signed=True)
    kind = UnsupportedMagicError if status == STATUS["BAD_MAGIC"] else CorruptBatchError
    return kind(path, position, base_offset, frame_reason(status, length, magic), SYMBOLS[status])


def frame_reason(status: int, length: int, magic: int) -> str:
    """Return what is wrong with a batch header, by its length and magic byte."""
    if status == STATUS["BAD_MAGIC"]:
        return f"magic {magic} is not 0, 1 or 2"
    if status != STATUS["BAD_LENGTH"]:
        return SENTENCES[status]
    known_magic = 0 <= magic < len(_layout.min_lengths)
    minimum = _layout.min_lengths[magic] if known_magic else _layout.min_lengths[0]
    return f"batch_length {length} is below {minimum}"


def detached(error: Error) -> Error:
    """
    Return an error without its traceback and causes.

    Their frames would keep views of the source alive.
    """
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error


_BATCH_ERRORS: dict[str, type[CorruptBatchError]] = {
    "UNSUPPORTED_COMPRESSION": UnsupportedCompressionError,
    "CHECKSUM_MISMATCH": ChecksumMismatchError,
}


def record_error(
    status: int | str, path: str, batch: np.void, detail: str = ""
) -> CorruptBatchError:
    """
    Return the error for damaged records of a batch.

    Parameters
    ----------
    status : int or str
        Number or symbol of the status.
    path : str
    batch : row of BATCH_DTYPE
    detail : str
        Added to the sentence of the status.
    """
    number = STATUS[status] if isinstance(status, str) else status
    symbol = SYMBOLS[number]
    reason = f"{SENTENCES[number]}: {detail}" if detail else SENTENCES[number]
    kind = _BATCH_ERRORS.get(symbol, InvalidRecordError)
    return kind(path, int(batch["position"]), int(batch["base_offset"]), reason, symbol)
