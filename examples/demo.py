"""What `make demo` shows: partition folders that a real Kafka broker wrote.

    python examples/demo.py FOLDER

FOLDER holds data dirs as <name>/data, as tests/golden does.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

import kafkascan as ks


def show(*command: str) -> None:
    """Run a command of the command line and show both."""
    print(f"\n$ kafkascan {' '.join(command)}", flush=True)
    result = subprocess.run([sys.executable, "-m", "kafkascan", *command], check=False)
    if result.returncode not in (0, 1):  # 1: findings, such as the tail of a killed broker
        sys.exit(result.returncode)


def show_large_and_late(path: Path) -> None:
    """Select batches with NumPy, from their headers alone."""
    scan = ks.scan_batches(path)
    print(f"\n>>> scan = ks.scan_batches({str(path)!r})\n>>> scan\n{scan}")

    late = scan.max_timestamps > np.datetime64("2030-01-01")
    print('\n>>> late = scan.max_timestamps > np.datetime64("2030-01-01")')
    print('>>> scan.batches[late]["base_offset"], scan.max_timestamps[late]')
    print(scan.batches[late]["base_offset"], scan.max_timestamps[late])


def show_bytes_by_codec(data_dir: Path) -> None:
    """Add up bytes and records by codec over a whole data dir."""
    tables = [
        ks.scan_batches(segment.path).batches for _, segment in ks.open_log_dir(data_dir).segments()
    ]
    batches = np.concatenate(tables)
    codecs, sizes = ks.compression_type(batches), ks.size_in_bytes(batches)
    print(f"\n>>> # all of {data_dir}: {len(batches)} batches")
    for codec in ks.CompressionType:
        of_codec = codecs == codec
        records = batches["records_count"][of_codec].sum()
        if records:
            size = sizes[of_codec].sum()
            print(
                f"{codec.display_name:8}{size:9,} bytes {records:6,} records"
                f" {size / records:8.1f} bytes/record"
            )


def main(folder: Path) -> None:
    """Show everything, in the order of the README."""
    data_dirs = sorted(folder.glob("*/data"))
    if not data_dirs:
        sys.exit(f"{folder}: no data dirs here")
    for data_dir in data_dirs:
        show("batches", "--verify", str(data_dir))
    for data_dir in data_dirs:
        show("verify", str(data_dir))
    newest = folder / "kafka-4.4.0" / "data"
    show("info", str(newest))
    show("records", "--limit", "12", "--from-offset", "1", str(newest / "headers-0"))
    show_large_and_late(newest / "timestamps-0" / "00000000000000000000.log")
    show_bytes_by_codec(newest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
