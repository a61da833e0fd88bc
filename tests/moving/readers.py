"""Readers of logs by name: public functions, and the commands of the command line."""

from __future__ import annotations

from tests.moving.answers import Reader
from tests.moving.functions import FUNCTIONS, FUNCTIONS_OF_STATE
from tests.moving.histories import HISTORIES
from tests.moving.recorded import NAMES
from tests.moving.verbs import VERBS, VERBS_OF_STATE

READERS: dict[str, Reader] = {
    **FUNCTIONS,
    **FUNCTIONS_OF_STATE,
    **{f"kafkascan {name}": reader for name, reader in (VERBS | VERBS_OF_STATE).items()},
}
ROW_READERS = {
    "kafkascan info of data dir",
    "kafkascan audit with notes",
    "kafkascan report",
}
"""Those of several logs, or with notes of side files: each row is that of a moment."""
_OF_STATE = {*FUNCTIONS_OF_STATE, *(f"kafkascan {name}" for name in VERBS_OF_STATE)}


def histories_of(reader: str) -> list[str]:
    """Return the names of the histories that have what a reader reads."""
    return list(NAMES if reader in _OF_STATE else HISTORIES)
