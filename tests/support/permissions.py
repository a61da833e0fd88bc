"""Temporary folders that processes of other users may enter."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED = tempfile.gettempdir()


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """Yield a folder; those of pytest become private again whenever another pytest starts."""
    with tempfile.TemporaryDirectory(prefix="kafkascan-", dir=_SHARED) as name:
        Path(name).chmod(0o755)
        yield Path(name)
