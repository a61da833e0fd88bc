"""Errors of files: they name the file as an OSError does, and survive a process boundary."""

from __future__ import annotations

import errno
import pickle
import weakref

import pytest

from kafkascan.format.errors import (
    ArchiveError,
    LinkedFileError,
    LogDirInUseError,
    NoLogsError,
    SourceReadError,
    detached,
)
from kafkascan.io.folders import SideFileTooLargeError
from kafkascan.tiered.tier_errors import MissingKeyError

ERRORS = {
    errno.EINVAL: ArchiveError("/data/a", 512, "a link"),
    errno.ELOOP: LinkedFileError("/data/a"),
    errno.EAGAIN: LogDirInUseError("/data/a"),
    errno.ENOENT: NoLogsError("/data/a", "it is empty", ("b", "c")),
    errno.EIO: SourceReadError("/data/a", 7, "the file was truncated"),
    errno.EFBIG: SideFileTooLargeError("/data/a", 9, 8),
    errno.EACCES: MissingKeyError("/data/a", "key-1", "it is encrypted"),
}


@pytest.mark.parametrize("number", ERRORS)
def test_errors_of_files_are_those_of_the_system(number: int) -> None:
    error = ERRORS[number]
    assert (error.errno, error.filename, error.path) == (number, "/data/a", "/data/a")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    assert (copy.errno, copy.filename) == (number, "/data/a")
    assert str(error).startswith("/data/a: ")


def test_a_detached_error_keeps_no_objects_alive() -> None:
    """A list of errors must not keep files mapped."""

    class Held:
        pass

    def fail() -> None:
        held = Held()
        nonlocal reference
        reference = weakref.ref(held)
        try:
            raise KeyError
        except KeyError as error:
            raise ValueError("it is damaged") from error

    reference: weakref.ref[Held] | None = None
    try:
        fail()
    except ValueError as error:
        kept = detached(error)
    assert reference is not None
    assert reference() is None
    assert (type(kept), str(kept)) == (ValueError, "it is damaged")
    assert (kept.__cause__, kept.__context__, kept.__traceback__) == (None, None, None)
