"""Errors of remote storage: objects that are damaged, missing, locked, or of an unread layout."""

from __future__ import annotations

import errno

from kafkascan.format.errors import KafkaScanError, SourceReadError


class CorruptObjectError(SourceReadError):
    """
    A stored object does not have the form that the layout prescribes, or was changed.

    Attributes
    ----------
    path : str
        The object.
    position : int
        Byte position in the object.
    reason : str
    """

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason, "CORRUPT_OBJECT")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.position, self.reason)


class MissingKeyError(KafkaScanError, PermissionError):
    """
    A segment is encrypted, and its data key cannot be decrypted with the given keys.

    Attributes
    ----------
    path : str
        The manifest.
    key_id : str
        The id of the key pair that is needed.
    """

    def __init__(self, path: str, key_id: str, reason: str) -> None:
        super().__init__(errno.EACCES, reason)
        self.filename = path
        self.path = path
        self.key_id = key_id
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} [MISSING_KEY]"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, self.key_id, self.reason)


class UnknownLayoutError(KafkaScanError, ValueError):
    """
    The objects are not of a layout that kafkascan reads.

    Attributes
    ----------
    path : str
    reason : str
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason} [UNKNOWN_LAYOUT]"
