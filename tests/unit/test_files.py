"""Small files, read and compared by plain system calls."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkascan.files import holds, read_up_to


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
