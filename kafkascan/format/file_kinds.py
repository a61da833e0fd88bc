"""Recognize files that are not logs, by their name or their first bytes.

The first bytes of a log are its first offset, which is far below the numbers that these signatures
and texts stand for. So they never match the beginning of a log, even of a torn one.
"""

from __future__ import annotations

import re

from kafkascan.format.file_names import INDEX_KINDS

HEAD_SIZE = 512
"""Bytes at the beginning of a file that `why_not_a_log` needs."""

# (position, bytes, what the file is)
_SIGNATURES = (
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (0, b"\x04\x22\x4d\x18", "an LZ4 file"),
    (0, b"\xff\x06\x00\x00sNaPpY", "a Snappy file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\x00", "an xz file"),
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ARROW1", "an Arrow file"),
    (0, b"Obj\x01", "an Avro file"),
    (0, b"ORC", "an ORC file"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"\x7fELF", "a program"),
    (0, b"kafkascan.fingerprints", "a file of fingerprints"),
    (0, b"version https://git-lfs", "a pointer of Git LFS"),
)
_SIDE_FILES = {
    "index": "an offset index (.index)",
    "timeindex": "a time index (.timeindex)",
    "txnindex": "a transaction index (.txnindex)",
    "snapshot": "a producer snapshot (.snapshot)",
}
_SIDE_FILE = re.compile(
    rf"(?:.*\.)?(?P<kind>{'|'.join(INDEX_KINDS)})(?:\.(?:deleted|cleaned|swap))?", re.DOTALL
)
_REDPANDA = re.compile(r"\d+-\d+-v\d+\.log(?:\.\d+)?")  # offset, term, version
_LEAST_TEXT = 8  # bytes; fewer are not enough to call them a text


def why_not_a_log(name: str, head: bytes) -> str | None:
    """
    Return why a file that does not begin with a batch of a likely offset is not a log.

    Parameters
    ----------
    name : str
        Name of the file; empty if it has none.
    head : bytes
        Its first bytes.

    Returns
    -------
    str or None
        Such as ``the file begins as a gzip file does, not with a batch``; None if it may be a log.
    """
    side_file = _SIDE_FILE.fullmatch(name)
    if side_file is not None:
        return f"this is {_SIDE_FILES[side_file['kind']]}, not a log"
    if _REDPANDA.fullmatch(name):
        return "this is a segment of Redpanda, whose batches have another format than Kafka's"
    kind = _kind_of_content(head)
    return None if kind is None else f"the file begins as {kind} does, not with a batch"


def _kind_of_content(head: bytes) -> str | None:
    for position, signature, kind in _SIGNATURES:
        if head[position:].startswith(signature):
            return kind
    return "a text file" if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    if len(head) < _LEAST_TEXT:
        return False
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:  # not a character that was cut off
            return False
        text = head[: error.start].decode()
    return all(one.isprintable() or one in "\t\r\n\f" for one in text)
