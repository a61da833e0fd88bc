"""Rebuild `tests/golden/`: `python -m tests.oracle.golden`. No test calls this.

Each run leaves a broker's data directory (`data/`), and Kafka's own description of it (`dump/`,
`fields/`, `records/`). With names of runs, only these are performed, and the files of the others
are kept. With `--records` or `--dumps` no broker is started: only `records/` or `dump/` is rebuilt,
from the data directories that are there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.oracle.build import ClassPaths, build, version_of
from tests.oracle.dump import describe_records, dump_data_dir
from tests.oracle.runs import RUNS, FinishedRun, perform
from tests.oracle.stage import Scenario

_GOLDEN = Path(__file__).resolve().parent.parent / "golden"
_MANIFEST = _GOLDEN / "MANIFEST.json"
_COMMAND = "python -m tests.oracle.golden"

_LARGEST_FILE = 1 << 20
"""Larger files are left out: only indexes preallocated at Kafka's default size are."""

_NOT_DATA = (".lock",)


def main(arguments: list[str]) -> None:
    """Perform runs in a temporary directory; replace their golden files when all are done."""
    class_paths = build()
    if arguments == ["--records"]:
        _replace_records(class_paths)
        return
    if arguments == ["--dumps"]:
        _replace_dumps(class_paths)
        return
    if not set(arguments) <= {run.name for run in RUNS}:
        raise SystemExit(f"usage: {_COMMAND} [--records | --dumps | RUN...]")
    wanted = [run for run in RUNS if not arguments or run.name in arguments]
    with tempfile.TemporaryDirectory(prefix="kafkascan-golden-") as directory:
        finished = [perform(run, Path(directory) / run.name, class_paths) for run in wanted]
        _refuse_broken_promises(finished)
        for run in finished:
            _replace(run)
        _write_manifest(finished, class_paths)


def _replace_records(class_paths: ClassPaths) -> None:
    """Describe the records of the data directories that are there; keep all other files."""
    manifest = _load()
    manifest["made_with"]["RecordFields"] = version_of(class_paths.broker, "kafka-clients")
    for name, facts in manifest["runs"].items():
        root = _GOLDEN / name
        shutil.rmtree(root / "records", ignore_errors=True)
        describe_records(root / "data", root, class_paths)
        facts["files"] = _changed_facts(facts["files"], root, "records")
    _save(manifest)


def _replace_dumps(class_paths: ClassPaths) -> None:
    """Dump the data directories that are there; keep the dumps of files that are left out."""
    manifest = _load()
    manifest["made_with"]["DumpLogSegments"] = version_of(class_paths.dump, "kafka-tools")
    for name, facts in manifest["runs"].items():
        root = _GOLDEN / name
        dump_data_dir(root / "data", root, class_paths)
        facts["files"] = _changed_facts(facts["files"], root, "dump")
    _save(manifest)


def _changed_facts(facts: dict[str, Any], root: Path, folder: str) -> dict[str, Any]:
    """Return the facts of a run's files, with those of the files that a folder has now."""
    kept = {file: known for file, known in facts.items() if not file.startswith(f"{folder}/")}
    made = {
        path.relative_to(root).as_posix(): _file_facts(path)
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }
    return dict(sorted((kept | made).items(), key=lambda one: Path(one[0])))


def _refuse_broken_promises(finished: list[FinishedRun]) -> None:
    broken = {
        f"{run.run.name}/{scenario.name}": promises
        for run in finished
        for scenario in run.run.scenarios
        if (promises := run.broken_promises(scenario))
    }
    if broken:
        raise RuntimeError(f"scenarios that broke their promises: {broken}")


def _replace(finished: FinishedRun) -> None:
    """Replace the old files of a run."""
    target = _GOLDEN / finished.run.name
    shutil.rmtree(target, ignore_errors=True)
    for source, relative in _kept(finished):
        copy = target / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)


def _kept(finished: FinishedRun) -> Iterator[tuple[Path, Path]]:
    """Yield each file to keep and its path below the run's directory."""
    for root, prefix in ((finished.data_dir, Path("data")), (finished.description, Path())):
        for source in sorted(root.rglob("*")):
            if (
                source.is_file()
                and source.name not in _NOT_DATA
                and source.stat().st_size <= _LARGEST_FILE
            ):
                yield source, prefix / source.relative_to(root)


def _left_out(finished: FinishedRun) -> list[dict[str, object]]:
    """Describe the files that are too large: their content before the zeros."""
    return [
        {
            "file": f"data/{source.relative_to(finished.data_dir)}",
            "size": source.stat().st_size,
            "content": f"{source.read_bytes().rstrip(bytes(1)).hex()}, then zeros",
        }
        for source in sorted(finished.data_dir.rglob("*"))
        if source.is_file() and source.stat().st_size > _LARGEST_FILE
    ]


def _write_manifest(finished: list[FinishedRun], class_paths: ClassPaths) -> None:
    kept = _load()["runs"]
    made = {run.run.name: _run_facts(run) for run in finished}
    manifest = {
        "command": _COMMAND,
        "made_with": {
            "jdk": _java_version(),
            "Java clients": version_of(class_paths.broker, "kafka-clients"),
            "DumpLogSegments": version_of(class_paths.dump, "kafka-tools"),
            "BatchFields": version_of(class_paths.broker, "kafka-clients"),
            "RecordFields": version_of(class_paths.broker, "kafka-clients"),
            "confluent-kafka": confluent_kafka.version(),
            "librdkafka": confluent_kafka.libversion()[0],
        },
        "runs": {run.name: made.get(run.name) or kept[run.name] for run in RUNS},
    }
    _save(manifest)


def _load() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(_MANIFEST.read_text(encoding="utf-8"))
    return manifest


def _save(manifest: dict[str, object]) -> None:
    _MANIFEST.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _run_facts(finished: FinishedRun) -> dict[str, object]:
    root = _GOLDEN / finished.run.name
    return {
        "broker": finished.run.broker.version,
        "ending": finished.run.ending,
        "scenarios": {
            scenario.name: _scenario_facts(scenario) for scenario in finished.run.scenarios
        },
        "left_out": _left_out(finished),
        "files": {str(relative): _file_facts(root / relative) for _, relative in _kept(finished)},
    }


def _scenario_facts(scenario: Scenario) -> dict[str, object]:
    return {
        "description": scenario.description,
        "topics": scenario.topics,
        "writers": scenario.writers,
        "promises": [promise.text for promise in scenario.promises],
    }


def _file_facts(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _java_version() -> str:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return java.stderr.splitlines()[0]


if __name__ == "__main__":
    main(sys.argv[1:])
