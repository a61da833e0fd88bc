"""Whether the index files beside a segment say what its batches say."""

from __future__ import annotations

import os

from kafkascan.batch_columns import BatchTable
from kafkascan.errors import CorruptIndexError
from kafkascan.findings import Severity
from kafkascan.index_checks import check_index
from kafkascan.names import sibling_name

OK, MISSING, DAMAGED, WRONG, UNKNOWN = "OK", "MISSING", "DAMAGED", "WRONG", "UNKNOWN"
KINDS = ("index", "timeindex")


def index_states(path: str, base_offset: int, batches: BatchTable) -> tuple[str, str]:
    """
    Judge the ``.index`` and the ``.timeindex`` file of a segment.

    Parameters
    ----------
    path : str
        Of the ``.log`` file.
    base_offset : int
        Of the segment.
    batches : array of BATCH_DTYPE
        All of the segment.

    Returns
    -------
    tuple of str
        For each: OK; MISSING; DAMAGED, if it is not made of whole entries; WRONG, if
        `check_index` finds an error. An index need not have an entry for every batch, and the
        active segment's may end with zeros.
    """
    return (
        _state(path, "index", base_offset, batches),
        _state(path, "timeindex", base_offset, batches),
    )


def _state(path: str, kind: str, base_offset: int, batches: BatchTable) -> str:
    folder, name = os.path.split(path)
    sibling = sibling_name(name, kind)
    if sibling is None or not os.path.exists(os.path.join(folder, sibling)):
        return MISSING
    try:
        found = check_index(os.path.join(folder, sibling), batches, base_offset=base_offset)
    except CorruptIndexError:
        return DAMAGED
    errors = {one.symbol for one in found if one.severity is Severity.ERROR}
    if "ODD_INDEX_SIZE" in errors:
        return DAMAGED
    return WRONG if errors else OK
