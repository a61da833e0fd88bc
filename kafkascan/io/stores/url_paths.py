"""URLs as paths, which keep their slashes."""

from __future__ import annotations

import os
from pathlib import Path, PosixPath
from typing import TypeGuard
from urllib.parse import urlsplit


class UrlPath(PosixPath):
    """
    A URL whose parts are those of a path: ``name``, ``parent``, ``/``.

    ``str`` and ``os.fspath`` return the URL. It names no file of the system: what asks the system
    about it finds none.
    """

    __slots__ = ()

    def __str__(self) -> str:
        scheme, colon, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}" if colon else scheme

    def __fspath__(self) -> str:
        return str(self)


def is_url(path: object) -> TypeGuard[str]:
    """Whether a text is a URL."""
    return isinstance(path, str) and "://" in path and urlsplit(path).scheme != ""


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path; of a URL, the path that keeps it."""
    text = os.fspath(path)
    return UrlPath(text) if is_url(text) else Path(text)
