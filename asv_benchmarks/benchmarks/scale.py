"""From 10 MB to 10 GB: time per batch stays what it is, memory is the table's and a constant.

Each measurement runs in a process of its own, so that its peak memory is its own. Pages of
a map count as resident while they are mapped, so memory is measured without a map.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from . import corpora

SIZES = (10**7, 10**8, 10**9, 10**10)
BATCH_SIZE = 1_061

MEASURE = """
import json, re, sys, time
import kafkascan as ks
path, memory_map, verb = sys.argv[1], sys.argv[2] == "map", sys.argv[3]
def peak():
    # Not getrusage's figure, which begins with that of the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
def run(source):
    if verb == "scan":
        return len(ks.scan_batches(source, threads=1))
    return sum(map(len, ks.iter_batches(source)))
with ks.Source(path, memory_map=memory_map) as source:
    before, times = peak(), []
    for _ in range(5 if memory_map else 1):
        start = time.perf_counter()
        count = run(source)
        times.append(time.perf_counter() - start)
    print(json.dumps({"count": count, "seconds": min(times), "grown": peak() - before}))
"""


def measure(size: int, access: str, verb: str) -> dict[str, float]:
    """Figures of one process, or nothing if the machine has no room for the segment."""
    corpora.FOLDER.mkdir(exist_ok=True)
    if shutil.disk_usage(corpora.FOLDER).free < 2 * size:
        raise NotImplementedError("no room for the segment")
    path = corpora.repeated(BATCH_SIZE, size)
    try:
        command = [sys.executable, "-c", MEASURE, str(path), access, verb]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    finally:
        path.unlink()


class Scale:
    params = (SIZES, ("scan", "iter"))
    param_names = ("size", "verb")
    timeout = 600

    def track_ns_per_batch(self, size: int, verb: str) -> float:
        figures = measure(size, "map", verb)
        return figures["seconds"] / figures["count"] * 1e9

    def track_memory_beyond_the_rows(self, size: int, verb: str) -> float:
        figures = measure(size, "read", verb)
        rows = figures["count"] if verb == "scan" else 65_536
        return figures["grown"] - 69 * rows


Scale.track_ns_per_batch.unit = "ns"
Scale.track_memory_beyond_the_rows.unit = "bytes"
