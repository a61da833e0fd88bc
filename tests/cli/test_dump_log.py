"""`kafkascan dump-log` takes the options of Kafka's tool, and ends as it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.segments import batch_v2
from tests.support.warm_process import Ended, run_warm

_GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-4.4.0"
_LOG = "data/consumed-0/00000000000000000000.log"


_PROGRAM = "import sys; from kafkascan.cli import main; sys.exit(main())"


def run(*arguments: str, folder: Path = _GOLDEN) -> Ended:
    return run_warm(_PROGRAM, "dump-log", *arguments, folder=folder)


def test_prints_the_lines_of_the_tool() -> None:
    expected = (_GOLDEN / "dump" / "consumed-0" / "00000000000000000000.log.txt").read_text("utf-8")
    for arguments in (["--print-data-log", "--files", _LOG], [f"--files={_LOG}", "--print"]):
        done = run(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def test_several_files_and_unknown_ones() -> None:
    done = run("--files", f"{_LOG},data/other.deleted")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Dumping {_LOG}\n")
    assert done.stdout.endswith("Dumping data/other.deleted\n")
    assert done.stderr == "Ignoring unknown file data/other.deleted\n"


def test_records_without_metadata() -> None:
    done = run("--skip-record-metadata", "--value-decoder-class", "--files", _LOG)
    assert done.stdout.splitlines()[3] == "| key: key-0 payload: 29b3622bb590"
    hexadecimal = run(
        "--key-decoder-class=org.apache.kafka.tools.api.DefaultDecoder", "--files", _LOG
    )
    assert " key: 6b65792d30 payload: 29b3622bb590" in hexadecimal.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Missing required argument "[files]"'),
        (["--files", "0.log"], "No such file"),
        (["--files", "00000000000000000000"], "the name has no suffix"),
        (["--files", "name.log"], "the name does not begin with an offset"),
    ],
)
def test_ends_with_one(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def test_what_comes_before_damage_is_printed(tmp_path: Path) -> None:
    data = batch_v2(b"", records_count=0)
    (tmp_path / "00000000000000000000.log").write_bytes(data + bytes(100))
    done = run("--files", "00000000000000000000.log", folder=tmp_path)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 3
    assert f"position {len(data)}" in done.stderr
    shortened = run("--files", "00000000000000000000.log", "--max-bytes", str(len(data)),
                    folder=tmp_path)  # fmt: skip
    assert (shortened.returncode, shortened.stderr) == (0, "")
