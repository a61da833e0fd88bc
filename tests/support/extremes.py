"""The numbers at the ends of what a field can hold, in every file of a data directory."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, cycle, product, zip_longest
from pathlib import Path
from typing import TypeVar

import crc32c

from kafkascan import broker_state
from tests.support.command_line import KILLED
from tests.support.covering import covering_rows
from tests.support.files import contents
from tests.support.partitions import HealthyPartition
from tests.support.segments import V2_FIELDS, message_v0, message_v1, sign

EXTREMES = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**31 - 1, 2**31, 2**63 - 2, 2**63 - 1)
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
_TEXT = ""
BEYOND = (2**63, 2**64 - 1, 10**20 - 1)
"""Numbers of a text or a name only."""


def extremes_of(bits: int) -> list[int]:
    """Return the extremes that fit into signed numbers, and the last ones at both ends."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return sorted({low, low + 1, high - 1, high, *(n for n in EXTREMES if low <= n <= high)})


Files = Mapping[str, bytes]
Tried = TypeVar("Tried")


@dataclass(frozen=True)
class Number:
    """A number in a file: its name, its bytes, and its code in `struct`, empty if it is text."""

    name: str
    file: str
    start: int
    stop: int
    code: str = _TEXT

    def values(self) -> Sequence[int]:
        return extremes_of(_BITS[self.code]) if self.code else (*EXTREMES, *BEYOND)

    def encode(self, value: int) -> bytes:
        return struct.pack(">" + self.code, value) if self.code else str(value).encode()


@dataclass(frozen=True)
class Case:
    """Files with extreme numbers, and the name of the case."""

    name: str
    files: Files


def changed(files: Files, changes: Iterable[tuple[Number, int]]) -> Case:
    """Return files with other numbers, and with valid checksums."""
    made = dict(files)
    # From the end: numbers of a text differ in length.
    ordered = sorted(changes, key=lambda one: (one[0].file, -one[0].start))
    for number, value in ordered:
        data = made[number.file]
        made[number.file] = data[: number.start] + number.encode(value) + data[number.stop :]
    for name in {number.file for number, _ in ordered}:
        made[name] = _signed(name, files[name], made[name])
    return Case(", ".join(f"{one.name} = {value}" for one, value in reversed(ordered)), made)


def _signed(name: str, original: bytes, data: bytes) -> bytes:
    if name.endswith(".snapshot"):
        return data[:2] + struct.pack(">I", crc32c.crc32c(data[6:])) + data[6:]
    if not name.endswith(".log"):
        return data
    batches = [bytearray(data[start:stop]) for start, stop in _batches(original)]
    for batch in batches:
        sign(batch)
    return b"".join(batches)


def _batches(log: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(log):
        size = 12 + int.from_bytes(log[at + 8 : at + 12], "big")
        yield at, at + size
        at += size


# ---- the numbers of a partition ------------------------------------------------------------------

_ENTRIES: dict[str, tuple[int, int, tuple[tuple[str, str], ...]]] = {
    ".index": (0, 8, (("relative_offset", "i"), ("position", "i"))),
    ".timeindex": (0, 12, (("timestamp", "q"), ("relative_offset", "i"))),
    ".txnindex": (0, 34, (("version", "h"), ("producer_id", "q"), ("first_offset", "q"),
                          ("last_offset", "q"), ("last_stable_offset", "q"))),
    ".snapshot": (10, 46, (
        ("producer_id", "q"), ("producer_epoch", "h"), ("last_sequence", "i"),
        ("last_offset", "q"), ("offset_delta", "i"), ("timestamp", "q"),
        ("coordinator_epoch", "i"), ("current_txn_first_offset", "q"),
    )),
}  # fmt: skip
"""By suffix: bytes before the entries, the size of an entry, and its fields."""
_NUMBERS_OF_BATCHES = [name for name in V2_FIELDS if name not in ("crc", "magic")]
_BATCHES = {"plain": 0, "transactional": 4, "marker": 5, "last": -1}
_CHECKPOINTS = {"recovery-point": 46, "replication": 46, "log-start": 3, "cleaner": 23}
_TOKEN = re.compile(rb"(?<![\w.-])-?\d+(?![\w.-])")


def partition_files(folder: Path) -> Files:
    """Write a healthy partition of two segments; return its files."""
    HealthyPartition(folder, segments=2).write()
    return contents(folder)


def numbers_of(files: Files) -> list[list[Number]]:
    """Return the numbers of each batch and entry, and of each text."""
    logs = sorted(name for name in files if name.endswith(".log"))
    groups = [_of_batch(files, logs[0], kind) for kind in _BATCHES]
    groups.append(_of_batch(files, logs[-1], "last"))
    for name, data in sorted(files.items()):
        suffix = Path(name).suffix
        if suffix in _ENTRIES:
            groups += _of_entries(name, data, *_ENTRIES[suffix])
        elif suffix != ".log":
            groups.append(texts_of(name, data))
    return [group for group in groups if group]


def _of_batch(files: Files, log: str, kind: str) -> list[Number]:
    start, _ = list(_batches(files[log]))[_BATCHES[kind]]
    found = []
    for name in _NUMBERS_OF_BATCHES:
        at, code = V2_FIELDS[name]
        stop = start + at + struct.calcsize(code)
        found.append(Number(f"{name} of the {kind} batch in {log}", log, start + at, stop, code))
    return found


def _of_entries(
    file: str, data: bytes, head: int, size: int, fields: Iterable[tuple[str, str]]
) -> Iterator[list[Number]]:
    if file.endswith(".snapshot"):
        yield [
            Number(f"version of {file}", file, 0, 2, "h"),
            Number(f"count of {file}", file, 6, 10, "i"),
        ]
    count = (len(data) - head) // size
    for entry in sorted({0, count - 1}) if count > 0 else ():
        at, numbers = head + entry * size, []
        for name, code in fields:
            stop = at + struct.calcsize(">" + code)
            numbers.append(Number(f"{name} of entry {entry} of {file}", file, at, stop, code))
            at = stop
        yield numbers


def texts_of(file: str, data: bytes) -> list[Number]:
    """Return the numbers of a text."""
    found = enumerate(_TOKEN.finditer(data))
    return [Number(f"number {n} of {file}", file, *one.span()) for n, one in found]


def singles(files: Files) -> Iterator[Case]:
    """Yield the files with each number at each extreme."""
    for numbers in numbers_of(files):
        for number in numbers:
            for value in number.values():
                yield changed(files, [(number, value)])


def pairs(files: Files) -> Iterator[Case]:
    """Yield the files with pairs of extremes: in a batch or entry, and in two of one kind."""
    groups = numbers_of(files)
    together = [pair for group in groups for pair in combinations(group, 2)]
    for first, second in combinations(groups, 2):
        if first[0].file == second[0].file and len(first) == len(second):
            together += zip(first, second, strict=True)
    for one, other in together:
        for values in product(one.values(), other.values()):
            yield changed(files, zip((one, other), values, strict=True))


_Row = list[tuple[Number, int]]


def covered_pairs(files: Files) -> Iterator[Case]:
    """
    Yield files in which every two extremes of a batch, of an entry or of a text stand together.

    A case changes about three quarters of the numbers of a batch or entry: where all are extreme, a
    file is often refused at its first number. So each two extremes are tried, but only beside other
    ones, which may hide what they do, and in one of the batches or entries of their kind. What
    they do beside usual numbers is tried only by a share of `pairs`: there are too many to try
    all. Files beside a log are changed in common cases.
    """
    same: dict[tuple[str, ...], list[list[Number]]] = {}
    for numbers in numbers_of(files):
        fields = [one.name.partition(" of ")[0] for one in numbers]
        same.setdefault((Path(numbers[0].file).suffix, *fields), []).append(numbers)
    rows: dict[str, list[_Row]] = {}
    for (suffix, *_), structures in same.items():
        rows.setdefault(suffix, []).extend(_covering(structures))
    logs = rows.pop(".log")
    for some in (*logs, *map(chain.from_iterable, zip_longest(*rows.values(), fillvalue=[]))):
        yield changed(files, some)


def _covering(structures: list[list[Number]]) -> Iterator[_Row]:
    """Yield numbers and values of a covering design, in the structures in turn."""
    values = [number.values() for number in structures[0]]
    rows = covering_rows([len(one) for one in values], (3 * len(values) + 3) // 4)
    for numbers, row in zip(cycle(structures), rows, strict=False):
        yield [(numbers[number], values[number][value]) for number, value in row.items()]


def named(files: Files) -> Iterator[Case]:
    """Yield the files with extreme numbers in the names of a segment, and of each file."""
    stems = {name.partition(".")[0] for name in files if name[:1].isdecimal()}
    for old in sorted(stems | {name for name in files if name[:1].isdecimal()}):
        stem = old.partition(".")[0]
        for value in (*EXTREMES, *BEYOND):
            new = old.replace(stem, f"{value:020}")
            renamed = {re.sub(f"^{re.escape(old)}", new, name): files[name] for name in files}
            yield Case(f"{old} is {new}", renamed)


def shifted(folder: Path) -> Iterator[Case]:
    """Yield partitions whose offsets begin, or end, at an extreme or shortly before it."""
    count = HealthyPartition(folder, segments=2).offset
    ends = [value - before for value in EXTREMES if value > 0 for before in (0, 1, 2)]
    for start in sorted({*ends, *(end - count for end in ends)}):
        if 0 <= start and start + count <= 2**63:
            target = folder / str(start)
            HealthyPartition(target, segments=2, offset=start).write()
            yield Case(f"offsets from {start} on", contents(target))


def legacy() -> Iterator[Case]:
    """Yield messages of the older formats with extreme offsets and timestamps."""
    for offset, timestamp in product(EXTREMES, repeat=2):
        log = message_v1(b"k", offset=0) + message_v1(b"k", offset=offset, timestamp=timestamp)
        log += message_v0(b"k", offset=offset)
        yield Case(f"messages of offset {offset}, time {timestamp}", {f"{0:020}.log": log})


# ---- data directories ----------------------------------------------------------------------------


def data_dir_files(folder: Path) -> Files:
    """Write a data directory with every text that a broker keeps in one; return its files."""
    HealthyPartition(folder / "x-0", segments=2).write()
    for name, offset in _CHECKPOINTS.items():
        path = folder / f"{name}-offset-checkpoint"
        broker_state.write_offset_checkpoint(path, {("x", 0): offset, ("y", 1): 7})
    broker_state.write_clean_shutdown(
        folder / ".kafka_cleanshutdown", broker_state.CleanShutdown(0, 5)
    )
    return {**contents(KILLED), **contents(folder)}


def of_data_dirs(files: Files) -> Iterator[Case]:
    """Yield a data directory with extreme numbers in its texts, and in the names of its files."""
    for file, data in sorted(files.items()):
        if Path(file).suffix not in (*_ENTRIES, ".log", ".checkpoint"):
            for number in texts_of(file, data):
                yield from (changed(files, [(number, value)]) for value in number.values())
    checkpoint = next(name for name in files if name.endswith(".checkpoint"))
    for value in (*EXTREMES, *BEYOND):
        for name in (f"{value:020}-0000000001", f"{0:020}-{value:010}"):
            path = f"__cluster_metadata-0/{name}.checkpoint"
            yield Case(f"there is {path}", {**files, path: files[checkpoint]})
        moved = {re.sub("^x-0/", f"x-{value}/", name): data for name, data in files.items()}
        yield Case(f"a partition has the number {value}", moved)


def sampled(cases: Iterable[Tried], share: float, seed: int = 0) -> Iterator[Tried]:
    """Yield a share of the cases or steps, always the same ones."""
    dice = random.Random(seed)
    return (case for case in cases if dice.random() < share)
