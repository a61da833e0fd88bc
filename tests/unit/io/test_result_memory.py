"""Memory of results: when blocks are used again, how much they take, forks, threads, refusals."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from kafkascan._core import result_blocks
from kafkascan.format.layout import BATCH_DTYPE
from kafkascan.io import result_memory
from tests.support.warm_process import run_warm

LARGE_PAGE = 1 << 21
MOST_FREE = 1 << 26
SMALL_UNIT = 1 << 16
MOST_SMALL_FREE = 1 << 23
SMALL_SIZES = (1 << 17, (1 << 17) + 1, 400_000, (1 << 20) - 1)
ROWS = (4 << 20) // BATCH_DTYPE.itemsize

HAS_BLOCKS = result_blocks.take_block(LARGE_PAGE) is not None
needs_blocks = pytest.mark.skipif(not HAS_BLOCKS, reason="no large pages, or a sanitizer")


@pytest.fixture(scope="module", autouse=True)
def collections_are_short() -> None:
    """Let the collector ignore what other tests left: it takes half a second to visit it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_free_blocks() -> None:
    """Begin without free blocks."""
    gc.collect()
    result_blocks.drop_free_blocks()


def place(array: np.ndarray) -> int:
    """Address of the first byte."""
    return int(array.ctypes.data)


def run(script: str, *, check: bool = True, **environment: str) -> str:
    """Output of a script in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert result.returncode == 0 or not check, result.stderr
    return result.stdout.strip()


# ---- which arrays are in blocks --------------------------------------------------------------


@needs_blocks
def test_arrays_from_a_mebibyte_on_are_aligned_to_large_pages() -> None:
    for size in (1 << 20, (1 << 20) + 1, LARGE_PAGE, 5 * LARGE_PAGE + 3):
        array = result_memory.empty(size, np.uint8)
        assert len(array) == size
        assert place(array) % LARGE_PAGE == 0
        array[:] = 7
        assert int(array.sum()) == 7 * size


def test_small_arrays_are_numpys_own() -> None:
    for count in (0, 1, (1 << 14) - 1):
        array = result_memory.empty(count, np.int64)
        assert array.flags.owndata
        assert array.shape == (count,)
    columns = result_memory.empty_columns(1000, {"a": np.int64, "b": np.int32})
    assert all(one.flags.owndata for one in columns.values())
    assert result_blocks.free_bytes() == 0


@pytest.mark.parametrize("count", [-1, 1 << 62, 1 << 70])
def test_impossible_sizes_raise_what_numpy_raises(count: int) -> None:
    with pytest.raises((ValueError, OverflowError, MemoryError)) as numpys:
        np.empty(count, np.int64)
    with pytest.raises(numpys.type):
        result_memory.empty(count, np.int64)


@pytest.mark.parametrize("size", [-1, 0, (1 << 46) + 1])
def test_there_is_no_block_of_an_impossible_size(size: int) -> None:
    assert result_blocks.take_block(size) is None


def test_sizes_beyond_memory_raise_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        result_memory.empty(1 << 44, np.int64)


@pytest.mark.parametrize("count", [0, 1, 1000, 100_000, 250_001])
def test_columns_do_not_overlap(count: int) -> None:
    dtypes = {"a": np.int64, "b": np.int32, "c": np.int8, "d": np.int64}
    columns = result_memory.empty_columns(count, dtypes)
    assert {name: one.dtype for name, one in columns.items()} == {
        name: np.dtype(one) for name, one in dtypes.items()
    }
    for number, one in enumerate(columns.values()):
        assert len(one) == count
        assert place(one) % 8 == 0
        one[:] = number
    for number, one in enumerate(columns.values()):
        assert (one == number).all()


# ---- when a block is used again --------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "table": lambda table: table,
    "rows": lambda table: table[2:5],
    "column": lambda table: table["magic"],
    "row": lambda table: table[3],
    "bytes": lambda table: memoryview(table.view(np.uint8)),
    "column of rows": lambda table: table[::2]["base_offset"][1:],
    "Arrow's": lambda table: pyarrow.py_buffer(table.view(np.uint8)),
}


@needs_blocks
@pytest.mark.parametrize("view", sorted(VIEWS))
def test_a_block_is_used_again_after_its_last_view(view: str) -> None:
    table = result_memory.empty(ROWS, BATCH_DTYPE)
    first, held = place(table), VIEWS[view](table)
    del table
    others = [result_memory.empty(ROWS, BATCH_DTYPE) for _ in range(3)]
    assert len({first, *map(place, others)}) == 4
    del held
    assert place(result_memory.empty(ROWS, BATCH_DTYPE)) == first


@needs_blocks
def test_a_column_keeps_its_content_after_its_table() -> None:
    columns = result_memory.empty_columns(200_000, {"a": np.int64, "b": np.int64})
    kept = columns["a"]
    kept[:] = np.arange(len(kept))
    del columns
    for _ in range(5):
        result_memory.empty_columns(200_000, {"a": np.int64, "b": np.int64})["a"][:] = -1
    assert (kept == np.arange(len(kept))).all()


@needs_blocks
def test_a_smaller_result_takes_a_part_of_a_free_block() -> None:
    large = result_memory.empty(6 * LARGE_PAGE, np.uint8)
    start = place(large)
    del large
    first, second = (result_memory.empty(LARGE_PAGE, np.uint8) for _ in range(2))
    assert start <= place(first) < start + 6 * LARGE_PAGE
    assert start <= place(second) < start + 6 * LARGE_PAGE
    assert place(first) != place(second)
    assert result_blocks.free_bytes() == 4 * LARGE_PAGE


@needs_blocks
@pytest.mark.parametrize("size", SMALL_SIZES)
def test_results_below_a_mebibyte_are_used_again_too(size: int) -> None:
    array = result_memory.empty(size, np.uint8)
    first = place(array)
    assert first % SMALL_UNIT == 0
    del array
    assert 0 < result_blocks.free_bytes() - size < SMALL_UNIT or size % SMALL_UNIT == 0
    assert place(result_memory.empty(size, np.uint8)) == first


@needs_blocks
def test_small_results_stay_out_of_large_pages() -> None:
    """Each would keep a whole one."""
    large = result_memory.empty(4 * LARGE_PAGE, np.uint8)
    start = place(large)
    del large
    small = result_memory.empty(400_000, np.uint8)
    assert not start <= place(small) < start + 4 * LARGE_PAGE


@needs_blocks
def test_small_free_blocks_are_limited() -> None:
    held = [result_memory.empty(size, np.uint8) for size in SMALL_SIZES * 20]
    for one in held:
        one.fill(1)
    del one
    while held:
        del held[0]
        assert result_blocks.free_bytes() <= MOST_SMALL_FREE
    assert result_blocks.free_bytes() > 0


@needs_blocks
def test_free_blocks_are_limited_and_the_oldest_goes() -> None:
    held = [result_memory.empty(4 * LARGE_PAGE, np.uint8) for _ in range(12)]
    places = [place(one) for one in held]
    while held:
        del held[0]
        assert result_blocks.free_bytes() <= MOST_FREE
    assert result_blocks.free_bytes() == MOST_FREE
    again = [result_memory.empty(4 * LARGE_PAGE, np.uint8) for _ in range(8)]
    assert {place(one) for one in again} == set(places[4:])


@needs_blocks
def test_many_small_blocks_make_room_for_others() -> None:
    held = [result_memory.empty(LARGE_PAGE, np.uint8) for _ in range(200)]
    held.clear()
    assert result_blocks.free_bytes() <= MOST_FREE
    large = result_memory.empty(8 * LARGE_PAGE, np.uint8)
    first = place(large)
    del large
    assert place(result_memory.empty(8 * LARGE_PAGE, np.uint8)) == first


@needs_blocks
def test_a_result_above_the_limit_is_given_back() -> None:
    array = result_memory.empty(MOST_FREE + 1, np.uint8)
    assert place(array) % LARGE_PAGE == 0
    del array
    assert result_blocks.free_bytes() == 0


# ---- shortened arrays ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 10, 20_000, ROWS // 2, ROWS])
@pytest.mark.parametrize("room", [100_000 // 69, 400_000 // 69, ROWS])
def test_fitted_arrays_begin_with_the_same_items(room: int, count: int) -> None:
    table = result_memory.empty(room, BATCH_DTYPE)
    count = min(count, room)
    table["base_offset"] = np.arange(room)
    table = result_memory.fitted(table, count)
    assert table["base_offset"].tolist() == list(range(count))


@needs_blocks
def test_a_result_a_little_below_the_size_of_blocks_is_not_copied() -> None:
    """The copy would take as long as the work, in fresh memory."""
    room = result_memory.empty(result_memory.MIN_BLOCK_SIZE, np.uint8)
    start = room.ctypes.data
    array = result_memory.fitted(room, result_memory.MIN_BLOCK_SIZE * 3 // 4)
    assert array.ctypes.data == start
    assert array.size == result_memory.MIN_BLOCK_SIZE * 3 // 4


@needs_blocks
def test_a_fitted_array_keeps_no_more_than_it_needs() -> None:
    array = result_memory.empty(10 * LARGE_PAGE, np.uint8)
    array[:] = 1
    before = resident()
    array = result_memory.fitted(array, 3 * LARGE_PAGE)
    assert before - resident() >= 6 * LARGE_PAGE
    assert (array == 1).all()
    array = result_memory.fitted(array, 100)
    assert array.base.nbytes == 100
    assert array.base.flags.owndata


# ---- how much memory -------------------------------------------------------------------------


def resident() -> int:
    """Resident bytes of this process."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10  # type: ignore[index]


@needs_blocks
@pytest.mark.parametrize("size", [1 << 20, 1_300_000, 2_300_000, 4_600_000, 20_000_000])
def test_results_take_less_than_a_large_page_more_than_their_size(size: int) -> None:
    before = resident()
    held = [result_memory.empty(size, np.uint8) for _ in range(10)]
    for one in held:
        one[:] = 1
    assert resident() - before < 10 * (size + LARGE_PAGE // 2 + 8192) + (1 << 20)


@needs_blocks
@pytest.mark.parametrize("size", SMALL_SIZES)
def test_small_results_take_less_than_a_unit_more_than_their_size(size: int) -> None:
    spare = [result_memory.empty((1 << 20) - 1, np.uint8) for _ in range(8)]
    for one in spare:
        one[:] = 1
    del one, spare  # resident pages of other results
    before = resident()
    held = [result_memory.empty(size, np.uint8) for _ in range(100)]
    for one in held:
        one[:] = 1
    assert resident() - before < 100 * (size + SMALL_UNIT) + (1 << 20)


MIXED_CALLS = """
import random, re, sys
import numpy as np
import kafkascan as ks
from kafkascan._core import result_blocks
if sys.argv[1] == "plain":
    from kafkascan.io import result_memory
    result_memory.MIN_BLOCK_SIZE = sys.maxsize
log = open(sys.argv[2], "rb").read()
rng = random.Random(7)
batches = ks.scan_batches(log).batches
sizes = (1, 10, 200, 2000, len(batches))
for call in range(300):
    part = batches[:rng.choice(sizes)]
    kind = call % 4
    if kind == 0:
        ks.scan_batches(log)
    elif kind == 1:
        ks.read_records(log, part, threads=rng.choice((1, 2)))
    elif kind == 2:
        ks.read_records(log, part, threads=1).to_arrow(["key", "value"])
    else:
        for table in ks.iter_records(log, part):
            pass
status = open("/proc/self/status").read()
print(re.search(r"VmRSS:\\s+(\\d+)", status)[1], re.search(r"VmHWM:\\s+(\\d+)", status)[1])
"""


@needs_blocks
def test_memory_after_mixed_calls_is_bounded(tmp_path: Path) -> None:
    """Beside the same calls with NumPy's memory: free blocks, and a large page a result."""
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(many_batches())

    def after(kind: str) -> list[int]:
        command = [sys.executable, "-c", MIXED_CALLS, kind, str(log)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [int(one) << 10 for one in output.split()]

    (now, most), (now_plain, most_plain) = after("blocks"), after("plain")
    assert now < now_plain + MOST_FREE + 4 * LARGE_PAGE
    assert most < most_plain + MOST_FREE + 8 * LARGE_PAGE


def many_batches() -> bytes:
    """A log of 4 000 batches of 50 records, every other one compressed."""
    from kafkascan import build_batches

    parts = []
    for codec in ("none", "lz4"):
        values = [b"%040d" % number for number in range(100_000)]
        offsets = np.arange(len(values))
        times = np.full(len(values), 1_700_000_000_000)
        columns = {"offset": offsets, "timestamp": times, "value": values}
        parts.append(build_batches(columns, compression_type=codec, max_records=50))
    return b"".join(map(bytes, parts))


@needs_blocks
def test_tracemalloc_counts_blocks_as_it_counts_arrays() -> None:
    tracemalloc.start()
    try:
        array = result_memory.empty(LARGE_PAGE, np.uint8)
        held = tracemalloc.get_traced_memory()[0]
        del array
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert LARGE_PAGE <= held < LARGE_PAGE + 100_000
    assert left < 100_000


# ---- forks and threads -----------------------------------------------------------------------

FORKED = """
import os, sys
import numpy as np
from kafkascan._core import result_blocks
from kafkascan.io import result_memory
held = result_memory.empty(3 << 21, np.uint8)
held[:] = 5
spare = result_memory.empty(8 << 20, np.uint8)
spare[:] = 1
del spare
assert result_blocks.free_bytes() == 8 << 20
child = os.fork()
assert result_blocks.free_bytes() == 0
if child == 0:
    assert (held == 5).all()
    held[:] = 6
    for _ in range(100):
        one = result_memory.empty(8 << 20, np.uint8)
        one[:] = 9
    del one, held
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert (held == 5).all()
"""


@needs_blocks
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_copies_results_but_no_free_blocks() -> None:
    ended = run_warm(FORKED)
    assert ended.returncode == 0, ended.stderr


FORK_BESIDE_THREADS = """
import os, threading, time
import numpy as np
from kafkascan.io import result_memory
stop = False
def work(number):
    while not stop:
        one = result_memory.empty((1 + number) << 20, np.uint8)
        one[:: 4096] = number
        assert (one[:: 4096] == number).all()
for number in range(1, 5):
    threading.Thread(target=work, args=(number,), daemon=True).start()
for turn in range(40):
    child = os.fork()
    if child == 0:
        for number in range(20):
            one = result_memory.empty((1 + number % 5) << 20, np.uint8)
            one[:: 4096] = 99
            assert (one[:: 4096] == 99).all()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop = True
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*")
def test_forks_beside_threads_share_no_block() -> None:
    ended = run_warm(FORK_BESIDE_THREADS)
    assert ended.returncode == 0, ended.stderr


def test_threads_never_get_the_same_memory() -> None:
    errors: list[str] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[np.ndarray] = []
        for _ in range(120):
            array = result_memory.empty(int(rng.integers(1 << 20, 9 << 20)), np.uint8)
            array[::4096] = number
            held.append(array)
            if len(held) > 3:
                held.pop(int(rng.integers(len(held))))
            if not all((one[::4096] == number).all() for one in held):
                errors.append(f"thread {number} found bytes of another one")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []
    assert result_blocks.free_bytes() <= MOST_FREE


# ---- systems without large pages -------------------------------------------------------------

WORK = """
import numpy as np
from kafkascan._core import result_blocks
from kafkascan.io import result_memory
for _ in range(3):
    one = result_memory.empty(20 << 20, np.uint8)
    one[:] = 3
    assert (one == 3).all()
    columns = result_memory.empty_columns(500_000, {"a": np.int64, "b": np.int32})
    columns["a"][:] = 1
    columns["b"][:] = 2
    assert columns["a"].sum() == 500_000
    one = result_memory.fitted(one, 3 << 20)
    assert len(one) == 3 << 20
"""

THP_OFF = """
import ctypes
PR_SET_THP_DISABLE = 41
is_off = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl")
def test_results_where_large_pages_are_off() -> None:
    if run(THP_OFF + "print(is_off)") != "True":
        pytest.skip("an emulator refuses to turn large pages off")
    script = THP_OFF + WORK + "print(open('/proc/self/smaps_rollup').read())"
    found = re.search(r"AnonHugePages:\s+(\d+) kB", run(script))
    assert found is not None
    assert int(found[1]) == 0


REFUSING = """
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void *start, size_t size, int advice) {
    if (advice == MADV_HUGEPAGE) { errno = REFUSAL; return -1; }
    return (int)syscall(SYS_madvise, start, size, advice);
}
"""


@needs_blocks
@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        ("EINVAL", "True False"),  # it has no large pages
        ("ENOMEM", "False True"),  # it has none at the moment
    ],
)
def test_results_where_the_kernel_refuses_large_pages(
    tmp_path: Path, refusal: str, expected: str
) -> None:
    source, library = tmp_path / "refusing.c", tmp_path / "refusing.so"
    source.write_text(REFUSING)
    command = ["cc", f"-DREFUSAL={refusal}", "-shared", "-fPIC", "-o", library, source]
    compiled = subprocess.run(command, check=False)
    if compiled.returncode != 0:
        pytest.skip("no C compiler")
    if run(f"import ctypes; ctypes.CDLL({str(library)!r}); print('loaded')", check=False) == "":
        pytest.skip("the C compiler is for another CPU than Python")
    script = WORK + "print(one.base.base is None, result_blocks.free_bytes() > 0)"
    # The loader separates the words of LD_PRELOAD at spaces, too.
    found = run(script, LD_PRELOAD=library.name, LD_LIBRARY_PATH=str(tmp_path))
    assert found == expected


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
@needs_blocks
def test_results_where_there_is_no_room_for_a_block() -> None:
    """A block needs whole large pages; where they do not fit, a smaller array may."""
    script = """
import resource
import numpy as np
from kafkascan.io import result_memory
size = int(next(l for l in open("/proc/self/status") if l.startswith("VmSize")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + (5 << 20), size + (5 << 20)))
held = []
try:
    while True:
        held.append(result_memory.empty((1 << 20) + 5, np.uint8))
except MemoryError:
    print(len(held))
"""
    assert int(run_warm(script).stdout) >= 2


@pytest.mark.parametrize("size", [100, result_memory.MIN_BLOCK_SIZE, 3 << 20])
def test_bytes_of_a_file(tmp_path: Path, size: int) -> None:
    content = os.urandom(2 << 20)
    path = tmp_path / "file"
    path.write_bytes(content)
    with open(path, "rb") as file:
        data = memoryview(result_memory.read_file(file.fileno(), 7, size))
        assert bytes(data) == content[7 : 7 + size]
        assert data.readonly
        assert len(result_memory.read_file(file.fileno(), len(content), size)) == 0
