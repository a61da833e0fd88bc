"""Small files, read and compared by plain system calls."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkascan.io import atomic_files
from kafkascan.io.atomic_files import AtomicFile, holds, read_up_to, replace_files
from tests.support.permissions import folder_for_all


@pytest.fixture(params=[1, 3, 1 << 20], ids=lambda size: f"{size} bytes at once")
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system give fewer bytes than it is asked for."""
    read = os.read

    def read_some(descriptor: int, size: int) -> bytes:
        return read(descriptor, min(size, request.param))

    monkeypatch.setattr(os, "read", read_some)


@pytest.mark.usefixtures("reads")
@pytest.mark.parametrize("data", [b"", b"x", b"a file"])
def test_a_file_holds_just_its_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert holds(str(path), data)
    assert not holds(str(path), data + b"\0")
    assert data == b"" or not holds(str(path), data[:-1])
    assert not holds(str(path), b"another file")
    assert not holds(str(path), data[:-1] + b"?")
    assert not holds(str(tmp_path / "none"), data)


@pytest.mark.usefixtures("reads")
def test_files_are_read_up_to_a_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a file")
    assert [read_up_to(str(path), size) for size in (0, 4, 6, 99)] == [
        b"", b"a fi", b"a file", b"a file"
    ]  # fmt: skip


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not holds(str(tmp_path / "pipe"), b"data")


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    """Complete files are removed, too, and buffered bytes are not written."""
    resource = pytest.importorskip("resource")
    (tmp_path / "first").write_bytes(b"old")
    folder = tmp_path / "first", tmp_path / "second", tmp_path / "third"
    pid = os.fork()
    if not pid:  # a limit cannot be taken back
        status = 2
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            files = [(path, bytes(50 * number), tmp_path) for number, path in enumerate(folder, 1)]
            replace_files([*files, (tmp_path / "last", b"x", tmp_path)], lambda path: None)
        except OSError as error:
            status = 0 if error.errno == errno.EFBIG else 1
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["first"]
    assert (tmp_path / "first").read_bytes() == b"old"


def as_nobody(groups: list[int], work: Callable[[], object]) -> None:
    """Run an action as a user with supplementary groups."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setgroups(groups)
            os.setgid(65534)
            os.setuid(65534)
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_who_cannot_give_files_away_leaves_them_to_their_group() -> None:
    with folder_for_all() as parent:
        folder = parent / "shared"
        folder.mkdir()
        (folder / "old").write_bytes(b"old")
        for path, mode in ((folder, 0o775), (folder / "old", 0o664)):
            os.chown(path, 1234, 4321)
            path.chmod(mode)

        def replace() -> None:
            with AtomicFile(folder / "old", like=folder / "old") as file:
                file.stream.write(b"new")

        as_nobody([4321], replace)
        status = (folder / "old").stat()
        assert (folder / "old").read_bytes() == b"new"
        assert (status.st_gid, status.st_mode & 0o777) == (4321, 0o664)


def test_a_signal_after_the_file_is_created_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_interrupted(path: str, flags: int, mode: int = 0) -> int:
        descriptor = os.open(path, flags, mode)
        if flags & os.O_CREAT:
            os.close(descriptor)
            raise KeyboardInterrupt
        return descriptor

    with monkeypatch.context() as patch:
        interrupted = SimpleNamespace(**vars(os) | {"open": open_interrupted})
        patch.setattr(atomic_files, "os", interrupted)
        with pytest.raises(KeyboardInterrupt), AtomicFile(tmp_path / "file"):
            pass
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".file.0.part").write_bytes(b"left")
    with AtomicFile(tmp_path / "file") as file:
        assert file.written.name == ".file.0.part"
        file.stream.write(b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"new"]


def test_two_writers_of_a_file(tmp_path: Path) -> None:
    """Each writes its own; the last one that ends wins."""
    with AtomicFile(tmp_path / "file") as one:
        with AtomicFile(tmp_path / "file") as other:
            assert one.written.name != other.written.name
            other.stream.write(b"other")
        one.stream.write(b"one")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"one"]


def test_a_writer_that_ends_leaves_the_file_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as a file is renamed, another process may have the name of the temporary one."""
    path, later = tmp_path / "file", AtomicFile(tmp_path / "file")
    sync = atomic_files.sync_folder

    def begin_another(folder: Path) -> None:
        monkeypatch.setattr(atomic_files, "sync_folder", sync)
        later.__enter__().stream.write(b"later")

    monkeypatch.setattr(atomic_files, "sync_folder", begin_another)
    with AtomicFile(path) as file:
        file.stream.write(b"first")
    assert later.written == file.written
    assert path.read_bytes() == b"first"
    later.__exit__(None, None, None)
    assert path.read_bytes() == b"later"
    assert list(tmp_path.iterdir()) == [path]


def test_a_complete_file_is_locked_until_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def meet_another(old: str, new: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            with AtomicFile(tmp_path / "file") as other:
                assert str(other.written) != old
        replace(old, new)

    monkeypatch.setattr(os, "replace", meet_another)
    with AtomicFile(tmp_path / "file") as file:
        file.stream.write(b"first")
    monkeypatch.undo()
    assert (tmp_path / "file").read_bytes() == b"first"


def test_a_pipe_or_a_folder_is_not_replaced(tmp_path: Path) -> None:
    """Renaming a file to the name of a device removes the device, if root does it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "folder", "link"):
        with pytest.raises(OSError, match=rf"not a regular file|Is a directory.*{name}"):
            AtomicFile(tmp_path / name).__enter__()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe"]
    assert (tmp_path / "pipe").is_fifo()
