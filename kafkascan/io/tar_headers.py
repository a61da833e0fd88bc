"""Read the headers of a tar: names, positions, sizes and holes of its files.

Memory and time are linear in the bytes of the headers, whatever they contain: names have a largest
length, extended headers a largest size, and each stored range of a sparse file a smallest one.
(The standard library's `tarfile` searches extended headers in quadratic time.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

from kafkascan.format.errors import ArchiveError

BLOCK = 512
_MAGIC = slice(257, 263)
_USTAR = b"ustar\0"
_CHECKSUM = slice(148, 156)
# Types of headers, as in POSIX (pax) and GNU tar.
_FILE_TYPES = b"0\x007S"
_LINK, _SYMLINK, _FOLDER, _SPARSE = b"1", b"2", b"5", b"S"
_WITHOUT_DATA = b"123456"  # links, devices, folders and FIFOs
_LONG_NAMES = {b"L": "path", b"K": "linkpath"}
_EXTENDED, _GLOBAL = b"xX", b"g"
# Keywords of extended headers that matter here.
_KEYWORDS = frozenset((
    "path", "linkpath", "size", "GNU.sparse.name", "GNU.sparse.size", "GNU.sparse.realsize",
    "GNU.sparse.map", "GNU.sparse.major", "GNU.sparse.minor",
))  # fmt: skip
_REPEATED = frozenset(("GNU.sparse.offset", "GNU.sparse.numbytes"))
# Longest path of a file (PATH_MAX), and largest extended header: room for 50 000 holes.
_LONGEST_NAME = 4096
_LARGEST_HEADER = 1 << 20
_LARGEST_FILE = (1 << 63) - 1
# Digits of a decimal number, and of the length of a line, that are read.
_DIGITS = 20
# Ranges in an old GNU header and in a block that follows it, and the size of their numbers.
_OLD_RANGES, _MORE_RANGES, _NUMBER = slice(386, 482), slice(0, 504), 12

Extents = tuple[tuple[int, int], ...]


class TarEntry(NamedTuple):
    """
    A file, folder or link in a tar.

    Attributes
    ----------
    name : str
    kind : {"file", "folder", "link"}
        Of hard links.
    link : str
        Name of the file that a link stands for.
    start : int
        Byte position of the data in the tar.
    size : int
        Size of the file, including its holes.
    extents : tuple of (int, int), or None
        Positions and sizes of the stored ranges of a sparse file; None for other files.
    """

    name: str
    kind: str
    link: str
    start: int
    size: int
    extents: Extents | None


def is_header(block: bytes) -> bool:
    """Return whether a block contains its own checksum."""
    if len(block) != BLOCK:
        return False
    try:
        stored = _number(block[_CHECKSUM])
    except ValueError:
        return False
    others = sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")
    if stored == others:
        return True
    negative = sum(byte >> 7 for byte in block) - sum(byte >> 7 for byte in block[_CHECKSUM])
    return stored == others - 256 * negative  # old tars sum signed bytes


class TarHeaders:
    """
    The headers of an open tar, in order.

    Parameters
    ----------
    path : Path
        Its name in messages.
    file : BinaryIO
    size : int
        Size of the tar.
    """

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size

    def __iter__(self) -> Iterator[TarEntry]:
        """
        Yield the files, folders and hard links.

        Raises
        ------
        ArchiveError
            If a header is damaged, forged or truncated.
        """
        at = 0
        fields: dict[str, str] = {}  # of the next file, from the headers before it
        while (block := self._block(at, fields)) is not None:
            kind = block[156:157]
            size = self._require_size(at, self._header_number(at, block[124:136]))
            if kind in _LONG_NAMES:
                name = self._read(at, size, _LONGEST_NAME + 1).partition(b"\0")[0]
                fields[_LONG_NAMES[kind]] = os.fsdecode(name)
            elif kind in _EXTENDED:
                fields.update(self._extended(at, size))
            elif kind == _GLOBAL:
                if found := self._extended(at, size):
                    self._fail(at, f"one {min(found)} for all files")
            else:
                entry, at = self._entry(at, block, size, fields)
                fields = {}
                if entry is not None:
                    yield entry
                continue
            at += BLOCK + _padded(size)

    def _block(self, at: int, fields: dict[str, str]) -> bytes | None:
        """Return the header at a position; None at the end of the tar."""
        if at > self._size:
            self._fail(self._size, "it is cut off in the middle of a file")
        self._file.seek(at)
        block = self._file.read(BLOCK)
        if any(block):
            if not is_header(block):
                self._fail(at, "the header of a file in it is damaged")
            return block
        if fields:
            self._fail(at, "the file of an extended header is missing")
        return None

    def _read(self, at: int, size: int, limit: int) -> bytes:
        """Return the data of a header that describes another one."""
        if size > limit:
            self._fail(at, f"{size} bytes are too many for a header")
        self._file.seek(at + BLOCK)
        data = self._file.read(size)
        if len(data) < size:
            self._fail(self._size, "it is cut off in the middle of a header")
        return data

    def _extended(self, at: int, size: int) -> dict[str, str]:
        """Return the keywords of an extended header that matter here."""
        data = self._read(at, size, _LARGEST_HEADER)
        found: dict[str, str] = {}
        ranges: list[str] = []
        position = 0
        while position < size:
            digits, space, _ = data[position : position + _DIGITS].partition(b" ")
            length = int(digits) if space and digits.isdigit() else 0
            line = data[position + len(digits) + 1 : position + length]
            key, equals, value = line.partition(b"=")
            if not (equals and value.endswith(b"\n") and position + length <= size):
                self._fail(at + BLOCK + position, "a line of an extended header is damaged")
            name = os.fsdecode(key)
            if name in _KEYWORDS:
                found[name] = os.fsdecode(value[:-1])
            elif name in _REPEATED:
                ranges.append(os.fsdecode(value[:-1]))
            position += length
        if ranges:  # sparse files of format 0.0 list offsets and sizes alternately
            found["GNU.sparse.map"] = ",".join(ranges)
        return found

    def _entry(
        self, at: int, block: bytes, stored: int, fields: dict[str, str]
    ) -> tuple[TarEntry | None, int]:
        """Return the entry of a header, if it is one of Kafka's kinds, and the next position."""
        kind, start = block[156:157], at + BLOCK
        name = fields.get("GNU.sparse.name") or fields.get("path") or _name(block)
        link = fields.get("linkpath") or _text(block[157:257])
        if max(len(name), len(link)) > _LONGEST_NAME:
            self._fail(at, f"a name of more than {_LONGEST_NAME} characters")
        if kind in _WITHOUT_DATA or (kind == b"\0" and name.endswith("/")):
            named = {_LINK: "link", _FOLDER: "folder", b"\0": "folder"}.get(kind)
            return (TarEntry(name, named, link, start, 0, None) if named else None), start
        if "size" in fields:
            stored = self._require_size(at, self._decimal(at, fields["size"]))
        end = start + _padded(stored)
        if kind not in _FILE_TYPES:
            return None, end
        if end > self._size:
            self._fail(self._size, f"it is cut off in the middle of {name!r}")
        if kind == _SPARSE:
            size = self._header_number(at, block[483:495])
            start, extents = self._old_extents(at, block, stored)
            end = start + _padded(stored)
        elif fields.get("GNU.sparse.major") == "1":
            size = self._real_size(at, fields)
            start, extents = self._stored_extents(at, stored)
        elif "GNU.sparse.map" in fields:
            size = self._real_size(at, fields)
            extents = self._listed_extents(at, fields["GNU.sparse.map"], stored)
        elif any(key.startswith("GNU.sparse.") for key in fields):
            self._fail(at, f"the format of the sparse file {name!r} is unknown")
        else:
            return TarEntry(name, "file", "", start, stored, None), end
        self._require_extents(at, name, extents, self._require_size(at, size), end - start)
        return TarEntry(name, "file", "", start, size, extents), end

    # ---- Sparse files ----

    def _real_size(self, at: int, fields: dict[str, str]) -> int:
        return self._decimal(
            at, fields.get("GNU.sparse.realsize") or fields.get("GNU.sparse.size", "")
        )

    def _old_extents(self, at: int, block: bytes, stored: int) -> tuple[int, Extents]:
        """Return the start of the data and the ranges of a GNU header with blocks after it."""
        listed, more, start = block[_OLD_RANGES], block[482], at + BLOCK
        extents: list[tuple[int, int]] = []
        while True:
            for pair in range(0, len(listed), 2 * _NUMBER):
                middle, after = pair + _NUMBER, pair + 2 * _NUMBER
                if size := self._header_number(at, listed[middle:after]):
                    extents.append((self._header_number(at, listed[pair:middle]), size))
            self._require_few(at, len(extents), stored)
            if not more:
                return start, tuple(extents)
            self._file.seek(start)
            block = self._file.read(BLOCK)
            if len(block) < BLOCK:
                self._fail(self._size, "it is cut off in the middle of a header")
            listed, more, start = block[_MORE_RANGES], block[504], start + BLOCK

    def _stored_extents(self, at: int, stored: int) -> tuple[int, Extents]:
        """Return the start of the data and the ranges that a pax 1.0 file begins with."""
        self._file.seek(at + BLOCK)
        limit = at + BLOCK + stored
        count = self._decimal(at, self._line(at, limit))
        self._require_few(at, count, stored)
        extents = _pairs([self._decimal(at, self._line(at, limit)) for _ in range(2 * count)])
        return at + _padded(self._file.tell() - at), extents

    def _listed_extents(self, at: int, text: str, stored: int) -> Extents:
        """Return the ranges that an extended header contains."""
        commas = text.count(",")
        self._require_few(at, (commas + 1) // 2, stored)
        if commas % 2 == 0:
            self._fail(at, "the list of its ranges is damaged")
        return _pairs([self._decimal(at, one) for one in text.split(",")])

    def _require_few(self, at: int, extents: int, stored: int) -> None:
        # The last range may be empty, and the one before it smaller than a block.
        if extents > stored // BLOCK + 2:
            self._fail(at, f"{extents} ranges are too many for {stored} bytes")

    def _line(self, at: int, limit: int) -> str:
        line = self._file.readline(_DIGITS + 1)
        if not line.endswith(b"\n") or self._file.tell() > limit:
            self._fail(at, "the list of its ranges is damaged")
        return os.fsdecode(line[:-1])

    def _require_extents(
        self, at: int, name: str, extents: Extents, size: int, stored: int
    ) -> None:
        """Require ranges in order, within the file and stored in the tar."""
        end = total = 0
        for row, (position, length) in enumerate(extents):
            # Tars store blocks: many small ranges are forged to make reading slow.
            is_small = length < BLOCK and row < len(extents) - 1
            if position < end or length < 0 or is_small:
                break
            end, total = position + length, total + length
        else:
            if end <= size and total <= stored:
                return
        self._fail(at, f"the size or the holes of {name!r} are out of range")

    # ---- Numbers ----

    def _header_number(self, at: int, field: bytes) -> int:
        try:
            return _number(field)
        except ValueError:
            self._fail(at, "a number in a header is damaged")

    def _decimal(self, at: int, text: str) -> int:
        if not (len(text) <= _DIGITS and text.isascii() and text.isdigit()):
            self._fail(at, f"{text[:_DIGITS]!r} is not a number")
        return int(text)

    def _require_size(self, at: int, size: int) -> int:
        if not 0 <= size <= _LARGEST_FILE:
            self._fail(at, f"size {size} is out of range")
        return size

    def _fail(self, position: int, reason: str) -> NoReturn:
        raise ArchiveError(str(self._path), position, f"it cannot be read as a tar: {reason}")


def _padded(size: int) -> int:
    return size + -size % BLOCK


def _pairs(numbers: list[int]) -> Extents:
    """Return the ranges that are not empty."""
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return tuple((at, size) for at, size in pairs if size)


def _text(field: bytes) -> str:
    return os.fsdecode(field.partition(b"\0")[0])


def _name(block: bytes) -> str:
    name, prefix = _text(block[:100]), _text(block[345:500])
    return f"{prefix}/{name}" if prefix and block[_MAGIC] == _USTAR else name


def _number(field: bytes) -> int:
    """Return a number of a header: octal digits, or bytes after a flag."""
    if field[:1] in (b"\x80", b"\xff"):
        value = int.from_bytes(field[1:], "big")
        return value if field[0] == 0x80 else value - (1 << 8 * (len(field) - 1))
    digits = field.partition(b"\0")[0].strip()
    return int(digits, 8) if digits else 0
