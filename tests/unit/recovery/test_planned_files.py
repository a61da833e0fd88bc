"""Planned changes of the files of a folder."""

from __future__ import annotations

from pathlib import Path

from kafkascan.recovery.loading.planned_files import Action, Part, PlannedFiles


def test_files_without_changes(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1")
    files = PlannedFiles(tmp_path)
    files.write("one", b"1", "the same")
    files.truncate("one", 1, "not shorter")
    files.delete("two", "it does not exist")
    assert files.changes() == []


def test_a_restored_file_that_is_deleted_after_all_is_deleted_once(tmp_path: Path) -> None:
    (tmp_path / "index").touch()
    files = PlannedFiles(tmp_path)
    files.delete("index", "replaced", at_first=True)
    files.write("index", b"", "missing")
    assert "index" in files
    assert files.changes() == []
    files.delete("index", "dropped", shortens_log=True)
    (change,) = files.changes()
    assert (change.action, change.reason, change.shortens_log) == (Action.DELETE, "dropped", True)


def test_a_renamed_file_is_truncated_under_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"12345")
    (tmp_path / "new").write_bytes(b"1")
    files = PlannedFiles(tmp_path)
    files.rename("old", "new", "complete")
    files.truncate("new", 3, "damaged")
    assert (files.names(), files.size("new"), files.read("new")) == (["new"], 3, b"123")
    renamed, truncated = files.changes()
    assert (renamed.old_name, renamed.name, renamed.old_size, renamed.new_size) == (
        "old", "new", 1, 5,
    )  # fmt: skip
    assert (truncated.action, truncated.old_size, truncated.new_size) == (Action.TRUNCATE, 5, 3)


def test_a_truncated_part_of_a_split_log(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"0123456789")
    files = PlannedFiles(tmp_path)
    parts = [Part("0.log", 0, 6), Part("6.log", 6, 10)]
    files.split_log("0.log", parts, "too large", siblings=["0.index"], keeps=False)
    files.truncate("6.log", 1, "damaged")
    (split,) = files.splits()
    assert files.changes() == [split.change]
    assert split.parts == [Part("0.log", 0, 6), Part("6.log", 6, 7)]
    assert split.replaced == ["0.log", "0.index"]
    assert (split.change.old_size, split.change.new_size) == (10, 7)
