"""Exceptions, and the one place where a status of the loops becomes one.

Every exception is a `KafkaScanError` and also the built-in that it resembles. The
facts of an error are attributes; its message names file, byte position and reason,
and ends with a greppable symbol.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from kafkascan._core import layout as _layout

if TYPE_CHECKING:
    import numpy as np

Error = TypeVar("Error", bound=BaseException)

SYMBOLS: dict[int, str] = {number: symbol for symbol, number, _ in _layout.statuses}
SENTENCES: dict[int, str] = {number: sentence for _, number, sentence in _layout.statuses}
STATUS: dict[str, int] = {symbol: number for symbol, number, _ in _layout.statuses}


class KafkaScanError(Exception):
    """Base of every exception that kafkascan defines."""


class CorruptLogError(KafkaScanError, ValueError):
    """
    Bytes of a log that cannot be what Kafka wrote.

    Attributes
    ----------
    path : str
        The file, or a description of the bytes in memory.
    position : int
        Byte position in the source.
    base_offset : int or None
        What stands where the batch's base offset would be; None where it is cut off.
    reason : str
    symbol : str
        The greppable name of the reason, such as ``BAD_LENGTH``.
    """

    def __init__(
        self, path: str, position: int, base_offset: int | None, reason: str, symbol: str
    ) -> None:
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
    """A batch header that cannot be one."""


class UnsupportedMagicError(CorruptBatchError):
    """A magic byte other than 0, 1 or 2: damage, or a format that does not exist yet."""


class InvalidRecordError(CorruptBatchError):
    """Records that are not what their batch says, or that cannot be decompressed."""


class UnsupportedCompressionError(CorruptBatchError):
    """A codec that the format of the batch does not know."""


class ChecksumMismatchError(CorruptBatchError):
    """The stored checksum of a batch is not that of its bytes."""


class CorruptIndexError(CorruptLogError):
    """An index file that Kafka would not accept."""


class CorruptSnapshotError(CorruptLogError):
    """A snapshot of producers that Kafka would not accept."""


class CorruptCheckpointError(CorruptLogError):
    """A small text file beside a log that Kafka would not accept."""


class IndexOverflowError(KafkaScanError, OverflowError):
    """
    A batch whose offset or position an index of its segment cannot hold.

    Attributes
    ----------
    row : int
        Of the batch table.
    symbol : str
    path : str or None
        The log, if it is known which one it is.
    position : int or None
        Of the batch in that log.
    """

    def __init__(
        self, row: int, status: int, path: str | None = None, position: int | None = None
    ) -> None:
        super().__init__(row, status, path, position)
        self.row = row
        self.symbol = SYMBOLS[status]
        self.path = path
        self.position = position
        self._sentence = SENTENCES[status]

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}: position {self.position}: "
        return f"{where}batches[{self.row}]: {self._sentence} [{self.symbol}]"


class BatchTableError(KafkaScanError, ValueError):
    """
    A batch table that does not belong to the source it was used with.

    Attributes
    ----------
    path : str
    row : int
        Index into the table.
    symbol : str
    position : int or None
        Of the batch, if the log is known that it stands in.
    """

    def __init__(self, path: str, row: int, status: int, position: int | None = None) -> None:
        super().__init__(path, row, status, position)
        self.path = path
        self.row = row
        self.symbol = SYMBOLS[status]
        self.position = position
        self._sentence = SENTENCES[status]

    def __str__(self) -> str:
        where = "" if self.position is None else f"position {self.position}: "
        return f"{self.path}: {where}batches[{self.row}]: {self._sentence} [{self.symbol}]"


class RecordInputError(KafkaScanError, ValueError):
    """
    A record that Kafka's formats cannot hold, or that Kafka's writers refuse.

    Attributes
    ----------
    record : int
        Its number among those that are to be written.
    symbol : str
    """

    def __init__(self, record: int, status: int) -> None:
        super().__init__(record, status)
        self.record = record
        self.symbol = SYMBOLS[status]
        self._sentence = SENTENCES[status]

    def __str__(self) -> str:
        return f"records[{self.record}]: {self._sentence} [{self.symbol}]"


class SourceReadError(KafkaScanError, OSError):
    """
    Bytes that were there when the source was opened cannot be read any more.

    The file was truncated while it was being read, or its disk failed.

    Attributes
    ----------
    path : str
    position : int
        Of a byte that could not be read.
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(errno.EIO, reason)
        self.filename = path
        self.path = path
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.reason} [SOURCE_FAULT]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.position, self.reason)


class RewriteError(KafkaScanError, RuntimeError):
    """A log would not be what it is to become, and stays as it is; the message says why."""


class LogDirInUseError(KafkaScanError, BlockingIOError):
    """
    A broker uses the data dir: it holds the lock.

    Attributes
    ----------
    path : str
    """

    def __init__(self, path: str) -> None:
        super().__init__(errno.EAGAIN, "a running broker holds its lock")
        self.filename = path
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: a running broker holds its lock [LOG_DIR_IN_USE]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path,)


class ArchiveError(KafkaScanError, OSError):
    """
    A tar that cannot be read where it lies.

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
    """A source cannot be closed while a view of its bytes lives."""


def corrupt_batch_error(status: int, path: str, position: int, header: bytes) -> CorruptBatchError:
    """
    Name what is wrong with the batch header at a position.

    Parameters
    ----------
    status : int
        What the walk stopped with.
    path : str
    position : int
    header : bytes
        The first 17 bytes at the position: those up to and with the magic byte.
    """
    wire = {name: offset for name, _, offset in _layout.batch_header}
    length_at, magic_at = wire["batch_length"], wire["magic"]
    base_offset = int.from_bytes(header[:length_at], "big", signed=True)
    length = int.from_bytes(header[length_at : length_at + 4], "big", signed=True)
    magic = int.from_bytes(header[magic_at : magic_at + 1], "big", signed=True)
    if status == STATUS["BAD_MAGIC"]:
        return UnsupportedMagicError(
            path, position, base_offset, f"magic {magic} is not 0, 1 or 2", SYMBOLS[status]
        )
    known_magic = 0 <= magic < len(_layout.min_lengths)
    minimum = _layout.min_lengths[magic] if known_magic else _layout.min_lengths[0]
    reason = f"batch_length {length} is below {minimum}"
    return CorruptBatchError(path, position, base_offset, reason, SYMBOLS[status])


def detached(error: Error) -> Error:
    """
    Return an error without the frames that it came through.

    They hold views of what was read, for as long as somebody keeps the error.
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
    Name what is wrong with the records of a batch.

    Parameters
    ----------
    status : int or str
        Its number or symbol.
    path : str
    batch : row of BATCH_DTYPE
    detail : str
        Added to the sentence that the status stands for.
    """
    number = STATUS[status] if isinstance(status, str) else status
    symbol = SYMBOLS[number]
    reason = f"{SENTENCES[number]}: {detail}" if detail else SENTENCES[number]
    kind = _BATCH_ERRORS.get(symbol, InvalidRecordError)
    return kind(path, int(batch["position"]), int(batch["base_offset"]), reason, symbol)
