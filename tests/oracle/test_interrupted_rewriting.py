"""A broker starts on what killed rewrites and writers left, and loads the logs."""

from __future__ import annotations

import bisect
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkascan as ks
from tests.oracle.brokers import Broker, KafkaBroker, LegacyBroker, OlderBroker
from tests.oracle.build import ClassPaths
from tests.oracle.rebuild import LoadArguments, Rebuild
from tests.support.dying import run_dying
from tests.support.files import contents

pytestmark = pytest.mark.oracle

_GOLDEN = Path(__file__).parents[1] / "golden/kafka-4.4.0/data"
_CLEAN = LoadArguments(clean_shutdown=True)


@pytest.fixture(scope="module")
def rebuild(class_paths: ClassPaths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebuild]:
    with Rebuild(class_paths.broker, tmp_path_factory.mktemp("rebuild")) as running:
        yield running


# ---- in place ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "stride"), [("small-segments-0", 97), ("transactions-0", 7)])
@pytest.mark.parametrize(
    "code",
    [
        "ks.convert_log(folder, in_place=True, compression_type='zstd')",
        "ks.convert_log(folder, in_place=True, compression_type='gzip', to_magic=1)",
        "ks.restamp_log(folder, in_place=True, partition_leader_epoch=7)",
        "ks.scrub_log(folder, in_place=True, keep=ks.rewrite.without_offsets(1, 12))",
    ],
)
def test_what_is_left_is_loaded_and_completed(
    name: str, stride: int, code: str, rebuild: Rebuild, tmp_path: Path
) -> None:
    """Another run completes the rewrite also after a broker has loaded and closed the log."""
    complete = Path(shutil.copytree(_GOLDEN / name, tmp_path / "complete" / name))
    assert run_dying(code, complete, -1) == 0
    exit_code, step = -signal.SIGKILL, 2
    while exit_code:
        directory = Path(shutil.copytree(_GOLDEN / name, tmp_path / f"step-{step}" / name))
        exit_code = run_dying(code, directory, step)
        logs = {log.name: log.read_bytes() for log in directory.glob("*.log")}
        assert not rebuild.load(directory, _CLEAN).get("exception"), step
        assert {log.name: log.read_bytes() for log in directory.glob("*.log")} == logs, step
        _require_valid_indexes(directory)
        assert run_dying(code, directory, -1) == 0
        assert _logs_and_epochs(directory) == _logs_and_epochs(complete), step
        _require_valid_indexes(directory)
        step += stride


def _require_valid_indexes(directory: Path) -> None:
    for log in directory.glob("*.log"):
        batches = ks.scan_batches(log).batches
        for kind in ("index", "timeindex"):
            found = ks.check_index(log.with_suffix(f".{kind}"), batches)
            assert [one for one in found if one.severity == "error"] == []


def _logs_and_epochs(directory: Path) -> dict[str, bytes]:
    names = (".log", "leader-epoch-checkpoint")
    return {name: data for name, data in contents(directory).items() if name.endswith(names)}


# ---- to a target in a data directory -------------------------------------------------------------

_BUILD = "ks.build_batches(value=[bytes(1000)] * 100, max_records=1)"
_TO_TARGETS = {
    "SegmentWriter": f"ks.SegmentWriter(folder + '/new-0', segment_bytes=9000).append({_BUILD})",
    "convert": "ks.convert_log(folder + '/old-0', folder + '/new-0', compression_type='zstd')",
    "restamp": "ks.restamp_log(folder + '/old-0', folder + '/new-0', offset_shift=1000)",
    "scrub": "ks.scrub_log(folder + '/old-0', folder + '/new-0',"
    " keep=ks.rewrite.without_offsets(1, 12))",
    "salvage": "ks.salvage(folder + '/old-0', folder + '/new-0')",
}


@pytest.mark.parametrize("kind", [KafkaBroker, OlderBroker, LegacyBroker])
def test_a_broker_starts_on_what_killed_runs_left(
    kind: type[Broker], class_paths: ClassPaths, tmp_path: Path
) -> None:
    """It ignores temporary files, and takes a staged folder for an empty log that is deleted."""
    with kind(tmp_path / "broker", class_paths) as broker:
        broker.stop()
        data_dir = broker.data_dir
        for number, name in enumerate(("transactions-0", "small-segments-0")):
            shutil.copytree(_GOLDEN / name, data_dir / f"t-{number}")
            (data_dir / f"t-{number}" / "partition.metadata").unlink()
        shutil.copytree(data_dir / "t-0", tmp_path / "old-0")
        lefts = [_killed_run(verb, tmp_path / "old-0", data_dir) for verb in _TO_TARGETS]
        for left in lefts:  # now: each run removes what the one before it left
            left.rename(data_dir / left.name)
        in_place = "ks.convert_log(folder, in_place=True, compression_type='zstd')"
        assert run_dying(in_place, data_dir / "t-0", 6) == -signal.SIGKILL
        assert list((data_dir / "t-0").glob(".*"))
        staged = {path: contents(path) for path in data_dir.glob("kafkascan-0.*-delete/**/new-0")}
        assert len({path.parts[len(data_dir.parts)] for path in staged}) == len(_TO_TARGETS)
        broker.start()
        broker.stop()
        for path, files in staged.items():
            assert contents(path) == files, "the broker does not load it"
        with ks.SegmentWriter(data_dir / "new-0") as writer:
            writer.append(ks.build_batches(value=[b"x"]))
        assert list(data_dir.glob("kafkascan-0.*")) == []


def _killed_run(verb: str, source: Path, data_dir: Path) -> Path:
    """Return the staged folder of a run that died, outside of the data directory."""
    code = _TO_TARGETS[verb].replace("folder + '/old-0'", repr(str(source)))

    def run(step: int) -> int:
        exit_code = run_dying(code, data_dir, step)
        shutil.rmtree(data_dir / "new-0", ignore_errors=True)
        return exit_code

    last = bisect.bisect_left(range(1, 201), 0, key=run)  # a run that ends well has fewer steps
    for step in range(last, 0, -1):
        exit_code = run(step)
        found = [one for one in data_dir.glob("kafkascan-0.*") if any(one.glob("**/new-0/*.log"))]
        if exit_code == -signal.SIGKILL and found:
            return Path(shutil.move(found[0], data_dir.parent))
    raise AssertionError(f"{verb} leaves nothing")
