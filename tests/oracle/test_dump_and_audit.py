"""Audits find everything that DumpLogSegments complains about, at the same positions."""

from __future__ import annotations

import enum
import io
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.broker_state.index_checks import parse_index_file
from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from tests.oracle import damaged_files as files, damaged_logs as logs
from tests.oracle.build import ClassPaths
from tests.oracle.complaints import DEEP, PLAIN, SANITY, VERIFY, Complaint, Dump, dump_all
from tests.oracle.damaged_dirs import golden_directories
from tests.support.audits import TRUE_ALARMS
from tests.support.kafka_dump import parse_log

pytestmark = pytest.mark.oracle


def swapped_entries(directory: Path, dice: random.Random) -> None:
    """Index entries that do not ascend."""
    paths = sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    if not paths:
        return
    path = dice.choice(paths)
    size = 8 if path.suffix == ".index" else 12
    data = path.read_bytes()
    entries = [data[at : at + size] for at in range(0, len(data), size)]
    dice.shuffle(entries)
    path.write_bytes(b"".join(entries))


def other_magic(directory: Path, dice: random.Random) -> None:
    """A magic that Kafka does not know."""
    log = dice.choice(logs.logs(directory))
    data = bytearray(log.read_bytes())
    positions = ks.scan_batches(bytes(data)).batches["position"]
    if len(positions):
        data[int(dice.choice(positions)) + 16] = dice.randrange(3, 9)
        log.write_bytes(data)


_NOW = 1_800_000_000_000  # after the golden runs
_COPIES = 300
_DAMAGED_RUNS = ("kafka-2.8.2", "kafka-4.4.0", "kafka-4.4.0-killed")
_DAMAGE: list[logs.Damage] = [
    logs.torn_tail, logs.zero_tail, logs.garbage_tail, logs.flipped_byte, logs.flipped_byte,
    logs.flipped_and_signed, logs.other_field, logs.swapped_batches, logs.repeated_batches,
    logs.dropped_batch, files.lying_index, files.lying_index, files.lying_index,
    files.index_of_another, files.index_of_another, files.preallocated_index,
    swapped_entries, swapped_entries, swapped_entries, other_magic,
]  # fmt: skip
_MODES = {
    ".log": (PLAIN, DEEP),
    ".index": (PLAIN, VERIFY, SANITY),
    ".timeindex": (PLAIN, VERIFY, SANITY),
    ".txnindex": (PLAIN,),
}


class OnPurpose(enum.Enum):
    """Reasons for which the tool complains about a file and an audit has no finding."""

    APPENDED_AT_ONCE = "an entry points to the first batch of an append of several"
    """Brokers before 2.0 store the last offset of an append with the position of its first batch.
    The tool checks that batch only; a reader that starts there finds the offset."""

    FIRST_OFFSET = "the tool expects a segment to start at offset 0"
    """It compares the first offset with -1. A log may start at any offset."""

    COMPACTED = "offsets are missing inside batches that the cleaner rewrote"
    """An audit reports COMPACTION for the log."""

    LATEST_BY_HEADER = "the tool takes the latest timestamp of a batch from its records"
    """Kafka and its indexes use the batch's header. If the header is wrong or the batch damaged, an
    audit reports it for the log. A batch without records has no other time."""

    DAMAGE_BESIDE = "the tool fails on another file that it reads with an index"
    """The other file is the log or, for time indexes, the offset index. An audit reports it. Or an
    entry is right, but the batch to which it leads has a wrong end."""


@dataclass(frozen=True)
class Case:
    """A partition, its damage, the tool's complaints and the audit's findings."""

    folder: Path
    origin: Path
    damage: str
    dumps: list[Dump]
    findings: list[ks.auditing.LogFinding]

    def of(self, file: str | None) -> list[ks.auditing.LogFinding]:
        return [one for one in self.findings if one.file == file]

    def __str__(self) -> str:
        return f"{self.folder} ({self.origin.parent.parent.name}, {self.damage})"


@pytest.fixture(scope="module")
def cases(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    root, dice = tmp_path_factory.mktemp("dumps"), random.Random(6)
    originals = golden_directories()
    of_many_shapes = [one for one in originals if one.parent.parent.name in _DAMAGED_RUNS]
    made: list[tuple[Path, Path, str]] = []
    for number in range(len(originals) + _COPIES):
        is_intact = number < len(originals)
        origin = originals[number] if is_intact else dice.choice(of_many_shapes)
        folder = shutil.copytree(origin, root / str(number) / origin.name)
        for file in origin.parent.iterdir():  # what the data dir says of it
            if file.is_file():
                shutil.copy(file, folder.parent)
        damage = None if is_intact else dice.choice(_DAMAGE)
        if damage is not None:
            damage(folder, dice)
        made.append((folder, origin, "intact" if damage is None else damage.__name__))
    requests = [
        (file, mode)
        for folder, _, _ in made
        for file in sorted(folder.iterdir())
        for mode in _MODES.get(file.suffix, ())
    ]
    by_folder: dict[Path, list[Dump]] = {folder: [] for folder, _, _ in made}
    for dump in dump_all(requests, root / "printed", class_paths):
        by_folder[dump.file.parent].append(dump)
    return [
        Case(folder, origin, damage, by_folder[folder],
             ks.audit(folder, now_ms=_NOW, deep=True).findings)
        for folder, origin, damage in made
    ]  # fmt: skip


def complaints(case: Case) -> Iterator[tuple[Dump, Complaint]]:
    for dump in case.dumps:
        for complaint in dump.complaints:
            yield dump, complaint


def test_what_the_tool_complains_about_is_found(cases: list[Case]) -> None:
    met: Counter[str] = Counter()
    on_purpose: Counter[OnPurpose] = Counter()
    missing: list[str] = []
    for case in cases:
        for dump, complaint in complaints(case):
            reason = difference(case, dump, complaint)
            if reason is not None:
                on_purpose[reason] += 1
            elif case.of(dump.file.name):
                met[complaint.what] += 1
            else:
                missing.append(f"{case}: {dump.file.name} {dump.mode}: {complaint}")
    assert not missing, "\n".join(missing)
    # Each of the reasons occurs.
    assert set(on_purpose) == set(OnPurpose)
    for what in ("bad checksum", "invalid bytes", "mismatch", "timestamp mismatch",
                 "out of order", "not consecutive", "exception"):  # fmt: skip
        assert met[what] >= 3, met


def difference(case: Case, dump: Dump, complaint: Complaint) -> OnPurpose | None:
    """Return why an audit needs no finding for the file."""
    log = dump.file.with_suffix(".log")
    if complaint.what == "mismatch" and any(
        leads_to(one, *complaint.numbers) for one in (log, case.origin / log.name)
    ):
        return OnPurpose.APPENDED_AT_ONCE
    if complaint.what == "not consecutive":
        before, offset = complaint.numbers
        batches = ks.scan_batches(log, on_corrupt="stop").batches
        starts = batches["base_offset"][:1].tolist()
        if before == -1 and starts and offset >= starts[0] >= int(log.stem):
            return OnPurpose.FIRST_OFFSET
        inside = (batches["base_offset"] <= offset) & (ks.batches.last_offset(batches) > before)
        if inside.any() and {one.symbol for one in case.of(None)} >= {"COMPACTION"}:
            return OnPurpose.COMPACTED
    if complaint.what == "timestamp mismatch":
        batches = ks.scan_batches(log, on_corrupt="stop").batches
        of_time = batches[batches["max_timestamp"] == complaint.numbers[0]]
        symbols = {one.symbol for one in case.of(log.name)}
        if len(of_time) and (symbols & _OF_RECORDS or of_time[0]["records_count"] == 0):
            return OnPurpose.LATEST_BY_HEADER
    beside = {".index": [log], ".timeindex": [log, log.with_suffix(".index")]}
    others = beside.get(dump.file.suffix, [])
    if complaint.what == "exception" and any(case.of(one.name) for one in others):
        return OnPurpose.DAMAGE_BESIDE
    if complaint.what == "mismatch" and any(
        is_damage_of_offsets(one, *complaint.numbers) for one in case.of(log.name)
    ):
        return OnPurpose.DAMAGE_BESIDE
    return None


def is_damage_of_offsets(one: ks.auditing.LogFinding, indexed: int, met: int) -> bool:
    """Return whether a finding about a log says that a batch does not end where its header does."""
    # The tool reads on behind a magic that Kafka does not have.
    if one.symbol == "CORRUPT":
        return "BAD_MAGIC" in one.message
    return one.symbol == "OFFSET_OVERLAP" and one.offset is not None and indexed < one.offset <= met


_OF_RECORDS = {"CHECKSUM_MISMATCH", "BAD_RECORDS", "MAX_TIMESTAMP_MISMATCH"}


def leads_to(log: Path, indexed: int, met: int) -> bool:
    """Return whether a reader that starts at the batch with a last offset reaches another one."""
    ends = ks.batches.last_offset(ks.scan_batches(log, on_corrupt="stop").batches).tolist()
    return met < indexed and met in ends and indexed in ends[ends.index(met) :]


def test_places_are_those_that_the_tool_names(cases: list[Case]) -> None:
    """Return the first offset of each kind, as a finding has it."""
    compared: Counter[str] = Counter()
    for case in cases:
        for dump in case.dumps:
            found = {one.symbol: one for one in case.of(dump.file.name)}
            for what, check in (
                ("bad checksum", check_checksums),
                ("invalid bytes", check_tail),
                ("mismatch", check_offsets),
                ("timestamp mismatch", check_times),
            ):
                said = [
                    one.numbers
                    for one in dump.complaints
                    if one.what == what and difference(case, dump, one) is None
                ]
                if said and found:
                    assert check(dump, said, found), f"{case}: {dump}: {found}"
                    compared[what] += 1
    assert len(compared) == 4
    assert min(compared.values()) >= 3, compared


Said = list[tuple[int, ...]]
Found = dict[str, ks.auditing.LogFinding]


def check_checksums(dump: Dump, said: Said, found: Found) -> bool:
    one = found.get("CHECKSUM_MISMATCH")
    if one is None:  # behind a magic that Kafka does not have, the tool reads on
        return "BAD_MAGIC" in found["CORRUPT"].message
    is_whole = not any(one.what == "exception" for one in dump.complaints)
    return one.offset in {offset for (offset,) in said} and (
        one.count == len(said) if is_whole else one.count >= len(said)
    )


def check_tail(dump: Dump, said: Said, found: Found) -> bool:
    ((count,),) = said
    places = {one.position for symbol, one in found.items() if symbol in _TAILS}
    return dump.file.stat().st_size - count in places


_TAILS = ("TORN_TAIL", "CUT_SEGMENT", "ZERO_TAIL", "CORRUPT")


def check_offsets(dump: Dump, said: Said, found: Found) -> bool:
    """The wrong entries are among those that the tool names."""
    (entries, _), base = parse_index_file(dump.file.read_bytes(), dump.file), int(dump.file.stem)
    first = [found[symbol].position for symbol in _OF_ENTRIES if symbol in found]
    named = {base + int(entries["relative_offset"][at // 8]) for at in first if at is not None}
    return not first or bool(named & {offset for offset, _ in said})


_OF_ENTRIES = ("WRONG_POSITION", "OFFSET_NOT_IN_LOG")


def check_times(dump: Dump, said: Said, found: Found) -> bool:
    one = found.get("TIMESTAMP_MISMATCH") or found.get("OFFSET_NOT_IN_LOG")
    if one is None or one.position is None:
        return bool(found)
    entries, _ = parse_index_file(dump.file.read_bytes(), dump.file)
    return int(entries["timestamp"][one.position // 12]) in {time for time, _ in said}


def test_healthy_logs_are_healthy_to_both(cases: list[Case]) -> None:
    """Except for the intended findings of scenarios."""
    quiet = 0
    for case in cases:
        if case.damage != "intact":
            continue
        wanted = {
            symbol
            for topic, symbol in TRUE_ALARMS[case.origin.parent.parent.name]
            if case.folder.name.startswith(f"{topic}-")
        }
        alarms = {one.symbol for one in case.findings if one.severity >= ks.Severity.WARNING}
        assert alarms == wanted, case
        unexplained = [
            f"{dump.file.name} {dump.mode}: {complaint}"
            for dump, complaint in complaints(case)
            if difference(case, dump, complaint) is None
            and not all(one.severity == ks.Severity.NOTE for one in case.of(dump.file.name))
        ]
        assert unexplained == [], case
        quiet += not any(True for _ in complaints(case))
    assert quiet >= 20


def test_batches_are_listed_alike(cases: list[Case]) -> None:
    """
    As far as the tool comes, and kafkascan: the tool reads on behind a magic that Kafka does not
    have, as if it were that of the current format.
    """
    compared = bad = unknown = 0
    for case in cases:
        listed = ks.scan_log_dir(case.folder, include="all")
        chunks = list(listed)
        rows = np.concatenate([chunk.batches for chunk in chunks])
        segment = np.concatenate([chunk.segment for chunk in chunks])
        names = [one.path.name for _, one in listed.segments]
        for dump in case.dumps:
            if dump.file.suffix != ".log" or dump.mode != PLAIN or "\n" not in dump.stdout:
                continue
            mine = rows[segment == names.index(dump.file.name)]
            # It may die in the middle of a line.
            theirs = parse_log(dump.stdout[: dump.stdout.rindex("\n") + 1])
            count = len(theirs.batches)
            (end,) = (one for one in listed.ends if names[one.segment] == dump.file.name)
            if isinstance(end.error, ks.CorruptBatchError) and end.error.symbol == "BAD_MAGIC":
                if count > len(mine):
                    assert theirs.batches[len(mine)].magic > 2
                    unknown += 1
                count = min(count, len(mine))
                del theirs.batches[count:]
            elif not any(one.what == "exception" for one in dump.complaints):
                assert count == len(mine), f"{case}: {dump.file.name}"
                assert end.trailing_bytes == theirs.invalid_bytes, f"{case}: {dump.file.name}"
            mine = mine[:count]
            for name, values, wanted in columns(mine, dump.file, theirs.batches):
                assert values == wanted, f"{case}: {dump.file.name}: {name}"
            compared += count
            bad += sum(not one.is_valid for one in theirs.batches)
    assert compared > 3000
    assert bad >= 5
    assert unknown >= 1


def columns(mine: np.ndarray, log: Path, theirs: list) -> Iterator[tuple[str, list, list]]:
    """Yield names and values of the compared fields; old formats have fewer."""
    is_new = [one.base_offset is not None for one in theirs]
    of_mine: dict[str, Callable[[], list]] = {
        "position": lambda: mine["position"].tolist(),
        "size": lambda: ks.batches.size_in_bytes(mine).tolist(),
        "last_offset": lambda: ks.batches.last_offset(mine).tolist(),
        "magic": lambda: mine["magic"].tolist(),
        "crc": lambda: mine["crc"].tolist(),
        "max_timestamp": lambda: mine["max_timestamp"].tolist(),
        "is_valid": lambda: ks.verify_crcs(log, mine).tolist(),
    }
    for name, values in of_mine.items():
        yield name, values(), [getattr(one, name) for one in theirs]
    for name, other in (("base_offset", "base_offset"), ("records_count", "count"),
                        ("producer_id", "producer_id"), ("base_sequence", "base_sequence"),
                        ("partition_leader_epoch", "partition_leader_epoch")):  # fmt: skip
        yield (
            name,
            mine[name][is_new].tolist(),
            [getattr(one, other) for one, new in zip(theirs, is_new, strict=True) if new],
        )


def test_dump_log_prints_the_same_lines(cases: list[Case]) -> None:
    different: list[str] = []
    compared: Counter[bool] = Counter()
    stopped = 0
    for case in cases:
        for dump in case.dumps:
            died = dump.stderr.startswith("Exception in thread")
            # The tool itself writes the empty index that it does not find.
            if "Invalid max index size" not in dump.stderr:
                compared[died] += 1
                out, err, is_dead = our_dump(dump)
                same = is_dead == died and out == dump.stdout and err == dump.stderr
                same |= is_dead and died and is_dump_up_to_batch(out, dump.stdout)
                stops = is_dead and not died and is_dump_up_to_old_message(out, dump.stdout)
                stopped += stops
                if not (same or stops):
                    different.append(f"{case}: {dump.file.name} {dump.mode}: {dump.stderr[:200]}")
    assert not different, "\n".join(different)
    assert min(compared[False], compared[True]) > 50, compared
    assert stopped < sum(compared.values()) / 100


def is_dump_up_to_old_message(ours: str, theirs: str) -> bool:
    """
    Return whether a dump ends at a damaged message of magic 0 or 1.

    The tool prints the sizes of key and value that such a message contains, also if they exceed
    it, and goes on; we end with an error (docs/from-kafka-dump-log.md).
    """
    magics = re.findall(r"magic: (\d+)", theirs[: len(ours) + 500])
    return theirs.startswith(ours) and bool({"0", "1"} & set(magics))


def is_dump_up_to_batch(ours: str, theirs: str) -> bool:
    """
    Return whether a dump lacks only the records of its last batch.

    The tool prints records before it finds that a later one cannot be read, and the beginnings
    of lines before it fails.
    """
    rest = theirs.removeprefix(ours).split("\n")[:-1]
    return theirs.startswith(ours) and all(line.startswith("| offset: ") for line in rest)


def our_dump(dump: Dump) -> tuple[str, str, bool]:
    """Return what kafkascan prints, and whether it ends with an error."""
    options = DumpOptions(
        is_deep="--deep-iteration" in dump.mode,
        verifies_index_only="--verify-index-only" in dump.mode,
        checks_index_only="--index-sanity-check" in dump.mode,
    )
    out = io.BytesIO()
    err: list[str] = []
    try:
        dump_files([str(dump.file)], options, out.write, err.append)
    except (ks.format.KafkaScanError, OSError, ValueError):
        return out.getvalue().decode(), "".join(err), True
    return out.getvalue().decode(), "".join(err), False
