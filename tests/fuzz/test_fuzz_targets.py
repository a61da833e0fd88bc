"""The fuzz targets build, accept what brokers wrote, and report a failure."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.fuzz import run
from tests.fuzz.corpus import TARGETS, write_corpora

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.slow
def test_all_targets_run_without_libfuzzer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build = tmp_path / "fuzz"
    assert run.main(["--seconds", "0.2", "--standalone", "--build", str(build)]) == 0
    printed = capfd.readouterr().out
    for target in TARGETS:
        seeds = len(list((build / "corpus" / target).iterdir()))
        assert seeds > 30
        (line,) = (line for line in printed.splitlines() if line.startswith(f"{target}: "))
        assert int(line.split()[1].replace(",", "")) >= seeds


def test_a_target_accepts_what_brokers_wrote(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    toolchain = run.Toolchain("cc", has_libfuzzer=False)
    write_corpora(tmp_path / "corpus")
    run.build("record", tmp_path, toolchain)
    assert run.run("record", tmp_path, toolchain, 0.1, seed=1) is None
    seeds = len(list((tmp_path / "corpus" / "record").iterdir()))
    assert seeds > 30
    assert int(capfd.readouterr().out.split()[1].replace(",", "")) >= seeds


def test_a_failure_is_reported_with_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "fuzz_record.c"
    target.write_text(
        '#include "fuzz_input.h"\n'
        "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {\n"
        "    REQUIRE(size == 0 || data[0] != 'x');\n"
        "    return 0;\n"
        "}\n"
    )
    shutil.copy(run.HERE / "standalone_driver.c", tmp_path)
    monkeypatch.setattr(run, "HERE", tmp_path)
    toolchain = run.Toolchain("cc", has_libfuzzer=False)
    monkeypatch.setattr(run, "FLAGS", [*run.FLAGS, f"-I{Path(__file__).parent}"])
    (tmp_path / "corpus" / "record").mkdir(parents=True)
    (tmp_path / "corpus" / "record" / "seed").write_bytes(b"xyz")
    run.build("record", tmp_path, toolchain)
    error = run.run("record", tmp_path, toolchain, 0.1, seed=1)
    assert error is not None
    assert "not true: size == 0 || data[0] != 'x'" in error
    assert (tmp_path / "record-failed-input").read_bytes() == b"xyz"
