"""Files that become shorter while they are read.

Each case runs in a process of its own: what is tested for is that it survives.
"""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from kafkascan.analysis import producer_census
from kafkascan.logs.queries import index_seek
from tests.support import command_line
from tests.support.segments import Rig
from tests.support.waiting import HANG_SECONDS, IS_SANITIZED
from tests.support.warm_process import run_warm

PRELUDE = """
    import os, sys, threading, time
    import numpy as np
    import kafkascan as ks
    path = sys.argv[1]

    def treat_files_as_cold():
        from kafkascan.batches.header_reading import cold_headers, header_readers
        ks.Source.is_cached = lambda *piece: False
        header_readers._SMALLEST_PIECE = cold_headers._LARGE_GUESSED_BATCH = 0

    def read_cached_files():
        from kafkascan.batches import verify
        from kafkascan.batches.header_reading import header_readers
        from tests.support.cold_files import AlwaysReads
        verify.MapOrReads = header_readers.MapOrReads = AlwaysReads

    def outcome(operation):
        try:
            operation()
        except ks.format.SourceReadError as error:
            assert "truncated" in str(error), error
            print("SourceReadError", error.position)
        else:
            print("no error")
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(Rig().batches(4000, bytes(1000)).log)
    return path


def run(body: str, *arguments: object) -> list[str]:
    result = run_warm(textwrap.dedent(PRELUDE) + textwrap.dedent(body), *arguments)
    assert result.returncode == 0, f"{result.returncode}: {result.stderr}"
    return result.stdout.splitlines()


@pytest.mark.parametrize("size", [0, 12_288])
def test_no_start_of_a_batch_is_guessed_in_a_map_without_its_file(log: Path, size: int) -> None:
    body = """
        import mmap
        from kafkascan._core.batches import guess
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as log:
            size = int(sys.argv[2])
            print(guess(log, size, len(log), -1) >= size)
            os.truncate(path, size)
            print(guess(log, size, len(log), -1))
    """
    assert run(body, log, size) == ["True", "-1"]


# 12 288 is a page border, 1 000 000 is not one; at 0 nothing is left.
@pytest.mark.parametrize("size", [0, 12_288, 1_000_000])
@pytest.mark.parametrize("memory_map", [True, False])
@pytest.mark.parametrize("way", ["pass", "treat_files_as_cold()", "read_cached_files()"])
def test_truncated_before_each_operation(log: Path, size: int, memory_map: bool, way: str) -> None:
    body = f"""
        size, memory_map = int(sys.argv[2]), sys.argv[3] == "True"
        {way}
        source = ks.Source(path, memory_map=memory_map)
        batches = ks.scan_batches(source).batches
        os.truncate(path, size)
        outcome(lambda: ks.scan_batches(source))
        outcome(lambda: ks.scan_batches(source, on_corrupt="stop"))
        outcome(lambda: list(ks.iter_batches(source, rows=100)))
        outcome(lambda: ks.verify_crcs(source, batches, threads=1))
        outcome(lambda: ks.verify_crcs(source, batches[-1:]))
    """
    lines = run(body, log, size, memory_map)
    assert len(lines) == 5
    assert all(line.startswith("SourceReadError") for line in lines), lines


@pytest.mark.parametrize("way", ["pass", "treat_files_as_cold()", "read_cached_files()"])
def test_truncated_in_the_middle_of_scans_and_verifications(log: Path, way: str) -> None:
    """Every operation on a file that shrinks ends in an error; the process survives."""
    body = f"""
        ended = []
        {way}

        def work(operation):
            try:
                while True:
                    operation()
            except ks.format.SourceReadError:
                ended.append(True)

        source = ks.Source(path)
        batches = ks.scan_batches(source).batches
        operations = [
            lambda: ks.scan_batches(source),
            lambda: ks.verify_crcs(source, batches, threads=1),
            lambda: ks.verify_crcs(source, batches, threads=2),
            lambda: [None for _ in ks.iter_batches(source, rows=50)],
        ]
        threads = [threading.Thread(target=work, args=(one,)) for one in operations * 2]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        os.truncate(path, 50_000)
        for thread in threads:
            thread.join()
        print(len(ended), len(threads))
    """
    assert run(body, log) == ["8 8"]


def test_checksum_of_a_map_of_the_caller(log: Path) -> None:
    body = """
        import mmap
        with open(path, "rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        os.truncate(path, 4096)
        try:
            ks.crc32c(view)
        except ks.format.SourceReadError as error:
            print("SourceReadError", error.position)
    """
    assert run(body, log) == ["SourceReadError 4096"]


def test_other_faults_go_where_they_went_before(log: Path) -> None:
    """The SIGBUS guard is active only in our loops, and forwards other signals."""
    body = """
        import faulthandler
        faulthandler.enable()
        source = ks.Source(path)
        os.truncate(path, 4096)
        for _ in range(3):
            outcome(lambda: ks.scan_batches(source))
        sys.stdout.flush()
        source.as_array()[-1]
    """
    result = run_warm(textwrap.dedent(PRELUDE) + textwrap.dedent(body), log)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["SourceReadError"] * 3
    assert result.returncode == -signal.SIGBUS, "as without us"
    assert "Fatal Python error: Bus error" in result.stderr


def test_a_file_that_is_truncated_and_rewritten_all_the_time(log: Path) -> None:
    """The file may be truncated between any two reads."""
    body = """
        import subprocess
        content = open(path, "rb").read()
        child = subprocess.Popen([sys.executable, "-c", (
            "import os, sys\\n"
            "content = open(sys.argv[1], 'rb').read()\\n"
            "file = open(sys.argv[1], 'r+b', buffering=0)\\n"
            "while True:\\n"
            "    file.truncate(0); file.seek(0)\\n"
            "    file.write(content[:100]); file.write(content[100:])\\n"
        ), path])
        scans = errors = 0
        try:
            while scans + errors < 1000 or not errors:
                try:
                    with ks.Source(path) as source:
                        for _ in range(3):
                            scan = ks.scan_batches(source, on_corrupt="stop")
                            ks.verify_crcs(source, scan.batches, threads=1)
                    scans += 1
                except ks.KafkaScanError:
                    errors += 1
        finally:
            child.kill()
            child.wait()
    """
    assert run(body, log) == []


def test_no_row_is_invented_after_a_new_end(log: Path) -> None:
    """The page of the new end reads as zeros: half a header must not become a row."""
    body = """
        size = 61 + 1000
        source = ks.Source(path)
        os.truncate(path, size + 30)
        outcome(lambda: next(ks.iter_batches(source, rows=2)))
    """
    # The position of the batch, or of the first byte that is missing.
    assert run(body, log)[0] in ("SourceReadError 1061", "SourceReadError 1091")


@pytest.mark.skipif(IS_SANITIZED, reason="a fork may leave the sanitizer's allocator locked")
def test_forks_while_other_threads_work(log: Path) -> None:
    """A forked child can scan, whatever the threads of its parent did."""
    body = f"""
        import signal
        stop = []
        def work():
            while not stop:
                ks.scan_batches(path)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        statuses = set()
        for _ in range(60):
            child = os.fork()
            if child == 0:
                signal.alarm({HANG_SECONDS})
                os._exit(0 if len(ks.scan_batches(path)) == 4000 else 1)
            statuses.add(os.waitpid(child, 0)[1])
        stop.append(True)
        for thread in threads:
            thread.join()
        print(statuses)
    """
    assert run(body, log) == ["{0}"]


# Exit code of a run: -7 is death by SIGBUS, as without the guard.
@pytest.mark.parametrize(
    "event",
    ["faulthandler.enable(); touch()", "os.kill(os.getpid(), signal.SIGBUS); time.sleep(1)"],
)
def test_a_handler_installed_or_a_signal_sent_while_we_work(log: Path, event: str) -> None:
    body = f"""
        import faulthandler, signal
        source, other = ks.Source(path), ks.Source(path)
        busy = [True]
        def work():
            while busy:
                ks.crc32c(memoryview(bytes(1 << 22)))
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.05)
        def touch():
            os.truncate(path, 4096)
            try:
                ks.scan_batches(source)
            except ks.format.SourceReadError:
                print("SourceReadError", flush=True)
            other.as_array()[-1]
        {event}
        print("still alive")
    """
    result = run_warm(textwrap.dedent(PRELUDE) + textwrap.dedent(body), log)
    assert result.returncode == -signal.SIGBUS
    assert "still alive" not in result.stdout
    assert result.stderr.count("Fatal Python error") <= 1


# A window of a map is cut right after it was taken: copying it must not be done by Python.
CUT_WINDOWS = """
    take = ks.Source.window
    def cut(self, position, size):
        taken = take(self, position, size)
        if size == int(sys.argv[2]):
            os.truncate(path, int(sys.argv[3]))
        return taken
    ks.Source.window = cut
"""


@pytest.mark.parametrize("size", [0, 8192])
def test_a_header_of_an_unknown_magic_in_a_file_that_shrinks(tmp_path: Path, size: int) -> None:
    header = bytearray(Rig().batches(1, b"").log[:61])
    header[16] = 9
    path = tmp_path / "0.log"
    path.write_bytes(Rig().batches(4, bytes(10_000)).log + header)
    body = """
        from kafkascan.recovery.loading.offset_search import framed_batches
        source = ks.Source(path)
        outcome(lambda: list(framed_batches(source, 0)))
    """
    lines = run(textwrap.dedent(CUT_WINDOWS) + textwrap.dedent(body), path, 61, size)
    assert [line.split()[0] for line in lines] == ["SourceReadError"]


@pytest.mark.parametrize("size", [0, 8192])
@pytest.mark.parametrize(
    "read",
    [
        "tier_files.read_small(stored, path)",
        "tier_files.IndexPart(stored, 0, 20_000, None).read()",
        "chunk_reader.ChunkedObject(path, path, OneChunk(), False, None).read_at(0, 10)",
    ],
)
def test_an_object_of_a_tier_that_shrinks(tmp_path: Path, read: str, size: int) -> None:
    path = tmp_path / "0.indexes"
    path.write_bytes(bytes(range(250)) * 80)
    body = f"""
        from kafkascan.io.stores.stored_objects import ObjectInfo
        from kafkascan.tiered import chunk_reader, tier_files, tier_store
        store = tier_store.FolderStore(os.path.dirname(path))
        stored = tier_files.PlainFile(store, ObjectInfo("0.indexes", 20_000))

        class OneChunk:
            file_size = chunk_size = 20_000
            def plain_size(self, chunk):
                return 20_000
            def stored_range(self, chunk):
                return 0, 20_000

        outcome(lambda: {read})
    """
    lines = run(textwrap.dedent(CUT_WINDOWS) + textwrap.dedent(body), path, 20_000, size)
    assert [line.split()[0] for line in lines] == ["SourceReadError"]


def test_rows_around_an_offset_of_a_file_that_shrinks_after_its_index_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    with ks.SegmentWriter(folder) as writer:
        writer.append(Rig().batches(400, bytes(100)).log)
    path = folder / "00000000000000000000.log"
    check = index_seek._leads_to_batch

    def cut_after_check(*arguments: Any) -> bool:
        leads_to_batch = check(*arguments)
        os.truncate(path, 0)
        return leads_to_batch

    monkeypatch.setattr(index_seek, "_leads_to_batch", cut_after_check)
    done = command_line.run("batches", folder, "--around", 350, "--context", 2)
    assert done == command_line.run("batches", folder, "--around", 350, "--context", 2)
    assert (done.returncode, done.stderr) == (0, "")


def test_sampled_batches_of_a_file_that_shrinks_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t-0"
    with ks.SegmentWriter(folder) as writer:
        writer.append(ks.build_batches(value=[b"abc" * 100] * 9, compression_type="gzip"))
    path = folder / "00000000000000000000.log"
    read_ratios = producer_census.CompressionSample.ratios

    def cut_before_sampling(*arguments: Any) -> Any:
        os.truncate(path, 0)
        return read_ratios(*arguments)

    monkeypatch.setattr(producer_census.CompressionSample, "ratios", cut_before_sampling)
    found = ks.read_producers(folder, sample=5)
    assert found.sampled_batches.tolist() == [0]
    assert [one.symbol for one in found.problems] == ["NOT_SAMPLED"]
    assert str(path) in found.problems.rows()[0]["message"]
