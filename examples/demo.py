"""Read partition directories that real Kafka brokers wrote, and show the results on one screen.

    python examples/demo.py FOLDER

FOLDER contains data directories as <broker>/data, as tests/golden does. Every batch is verified
and every record is decoded. Exit code 1: a checksum is wrong, or a file is damaged.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import kafkascan as ks

MAX_CELL = 53
# A broker that was killed leaves zeros at the end of a preallocated file; that is no damage.
INTACT = (ks.ScanEnd.CLEAN, ks.ScanEnd.ZERO_TAIL)


@dataclass
class Totals:
    """What the segment files of one broker contain."""

    files: int = 0
    size: int = 0
    records: int = 0
    tables: list[np.ndarray] = field(default_factory=list)
    bad_checksums: int = 0
    ends: Counter[ks.ScanEnd] = field(default_factory=Counter)
    unreadable: list[Exception] = field(default_factory=list)

    @property
    def batches(self) -> int:
        """Number of batches."""
        return sum(map(len, self.tables))

    @property
    def is_intact(self) -> bool:
        """Whether all checksums are valid, all records are readable, and no file is damaged."""
        return not (self.bad_checksums or self.unreadable) and set(self.ends) <= set(INTACT)

    def add(self, other: Totals) -> None:
        """Add the totals of another broker."""
        self.files += other.files
        self.size += other.size
        self.records += other.records
        self.tables += other.tables
        self.bad_checksums += other.bad_checksums
        self.ends += other.ends
        self.unreadable += other.unreadable

    def row(self) -> tuple[object, ...]:
        """Return the totals as cells of a table."""
        ends = ", ".join(f"{end} {count}" for end, count in sorted(self.ends.items()))
        return (self.files, self.size, self.batches, self.records, self.bad_checksums, ends)


def read_broker(data_dir: Path) -> Totals:
    """Scan, verify and decode every segment file of a data directory."""
    found = Totals()
    for _, segment in ks.open_log_dir(data_dir).segments():
        with ks.Source(segment.path) as source:
            scan = ks.scan_batches(source, on_corrupt="stop")
            found.files += 1
            found.size += source.size
            found.tables.append(scan.batches)
            found.ends[scan.end] += 1
            found.bad_checksums += int((~ks.verify_crcs(source, scan.batches)).sum())
            found.records += sum(
                len(table)
                for table in ks.iter_records(
                    source, scan.batches, control="include", on_damage=found.unreadable.append
                )
            )
    return found


def cell_of(value: object) -> str:
    """Return the text of a table's cell."""
    if isinstance(value, int):
        return f"{value:,}"
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as aligned columns, numbers at the right."""
    cells = [[cell_of(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    are_numbers = [isinstance(value, (int, float)) for value in rows[0]]
    for line in (names, *cells):
        padded = (
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, are_numbers, strict=True)
        )
        print("   " + "  ".join(padded).rstrip())


def show_brokers(brokers: dict[str, Totals], total: Totals) -> None:
    """Print what was read, and the verdict."""
    print("1. READ: every segment file, all formats and codecs; every checksum, every record")
    names = ("broker", "files", "bytes", "batches", "records", "bad checksums", "how files end")
    rows = [(name, *one.row()) for name, one in brokers.items()]
    print_table(names, [*rows, ("all", *total.row())])
    if total.is_intact:
        print(f"   OK: all {total.batches} checksums are valid, no file is damaged")
    else:
        print("   FAILED: there are wrong checksums, unreadable records or damaged files")


def show_batches(path: Path) -> None:
    """Print the last batches of a segment, from their headers."""
    print(f'\n2. BATCHES: ks.scan_batches("{Path(*path.parts[-2:])}"), headers only')
    scan = ks.scan_batches(path)
    names = ("position", "base_offset", "last_offset", "records_count", "size_in_bytes",
             "producer_id", "is_control")  # fmt: skip
    codecs = [ks.CompressionType(code).display_name for code in scan["compression_type"]]
    columns = [*(scan[name].tolist() for name in names), codecs]
    print_table((*names, "codec"), list(zip(*columns, strict=True))[-5:])


def show_records(path: Path) -> None:
    """Print records with headers."""
    print(f'\n3. RECORDS: ks.read_records("{Path(*path.parts[-2:])}"), decoded into columns')
    columns = ks.read_records(path).to_numpy()
    rows = [
        (
            offset,
            np.datetime64(timestamp, "ms"),
            "null" if key is None else key.decode(),
            "null" if value is None else value.decode(),
            ", ".join(f"{name.decode()}={data!r}" for name, data in headers),
        )
        for offset, timestamp, key, value, headers in zip(
            columns["offset"].tolist(), columns["timestamp"].tolist(), columns["key"],
            columns["value"], columns["headers"], strict=True,
        )
    ]  # fmt: skip
    print_table(("offset", "timestamp", "key", "value", "headers"), rows[1:6])


def show_codecs(total: Totals) -> None:
    """Print bytes and records by codec: NumPy over one table of all batches."""
    print("\n4. CODECS: NumPy over the batch headers of all brokers")
    batches = np.concatenate(total.tables)
    codecs, sizes = ks.batches.compression_type(batches), ks.batches.size_in_bytes(batches)
    counted = batches["records_count"] >= 0  # compressed messages of old formats have no count
    rows = []
    for codec in ks.CompressionType:
        selected = counted & (codecs == codec)
        size, records = int(sizes[selected].sum()), int(batches["records_count"][selected].sum())
        rows.append((codec.display_name, size, records, size / records))
    print_table(("codec", "bytes", "records", "bytes per record"), rows)


def describe(changes: Sequence[ks.recovery.Change]) -> str:
    """Return the changes to a log, grouped by action."""
    names: dict[str, list[str]] = {}
    for change in changes:
        names.setdefault(change.action, []).append(change.name.lstrip("0"))
    return "; ".join(f"{action} {', '.join(files)}" for action, files in names.items())


def show_recovery(data_dir: Path) -> None:
    """Print what a broker would do to these logs at its next start."""
    name = Path(*data_dir.parts[-2:])
    print(f'\n5. RECOVERY of a killed broker: ks.recover("{name}"), a dry run')
    rows = [
        (
            f"{one.topic}-{one.partition}",
            one.log_end_offset,
            one.truncated_bytes,
            describe(one.changes),
        )
        for one in ks.recover(data_dir).partitions
    ]
    print_table(("log", "end offset", "trailing bytes", "changes"), rows)


def main(folder: Path) -> int:
    """Read all brokers, then show one screen; returns the exit code."""
    data_dirs = sorted(folder.glob("*/data"))
    if not data_dirs:
        sys.exit(f"{folder}: there are no data directories <broker>/data in this folder")
    start = time.perf_counter()
    brokers = {}
    for data_dir in data_dirs:
        print(f"reading and verifying {data_dir} ...", file=sys.stderr, flush=True)
        brokers[data_dir.parent.name] = read_broker(data_dir)
    seconds = time.perf_counter() - start
    total = Totals()
    for one in brokers.values():
        total.add(one)
    title = "files of real Kafka brokers, read without a broker or a JVM"
    print(f"kafkascan {ks.__version__}: {title}\n")
    newest = folder / "kafka-4.4.0" / "data"
    show_brokers(brokers, total)
    show_batches(max((newest / "transactions-0").glob("*.log")))
    show_records(min((newest / "headers-0").glob("*.log")))
    show_codecs(total)
    show_recovery(folder / "kafka-4.4.0-killed" / "data")
    print(f"\nRead, verified and decoded {total.files} files in {seconds:.2f} seconds.")
    return 0 if total.is_intact else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
