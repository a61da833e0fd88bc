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
ROW_READERS = {"kafkascan audit with notes", "kafkascan report"}
"""Those with notes of side files, each as of when it was read: each row is that of a moment."""
_OF_STATE = {*FUNCTIONS_OF_STATE, *(f"kafkascan {name}" for name in VERBS_OF_STATE)}

_COMPACTION = "the note COMPACTION has the cleaner's checkpoint of before the log was read: seed 50"
NOT_YET_TRUE = {
    ("kafkascan info of data dir", "copy_again"): (
        "segments in the middle of the log that were deleted after the listing (rsync --delete) are"
        " left out without a message, with exit code 0: seed 50"
    ),
    ("kafkascan info of data dir", "recorded kafka-4.4.0"): "logs of different moments: seed 6",
    ("kafkascan audit of data dir", "create_again"): "NO_LOGS, exit code 3: seed 9",
    ("kafkascan dump-log", "retention"): "a segment without its batches, exit code 0: seed 11",
    ("kafkascan audit with notes", "move_between_disks"): "UNREADABLE, exit code 3: seed 2",
    **{
        (f"kafkascan {verb}", history): _COMPACTION
        for verb in ("audit with notes", "report")
        for history in ("clean", "copy_again", *NAMES)
    },
}
"""Answers that are true of no moment for some seeds, by reader and history: what is wrong."""


def histories_of(reader: str) -> list[str]:
    """Return the names of the histories that have what a reader reads, and of which it is true."""
    histories = NAMES if reader in _OF_STATE else HISTORIES
    return [history for history in histories if (reader, history) not in NOT_YET_TRUE]
