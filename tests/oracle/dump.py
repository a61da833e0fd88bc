"""Run DumpLogSegments, BatchFields and RecordFields over the files of a data directory."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.oracle.build import ClassPaths
from tests.oracle.jvm import java_command
from tests.support.dump_decoders import DECODER_OPTIONS

LOG_SUFFIXES = (".log", ".checkpoint")
_DUMPED_SUFFIXES = (*LOG_SUFFIXES, ".index", ".timeindex", ".txnindex", ".snapshot")


def partition_directories(data_dir: Path) -> list[Path]:
    """Return the partition directories, sorted by name."""
    return sorted(
        path
        for path in data_dir.iterdir()
        if path.is_dir() and path.name.rpartition("-")[2].isdigit()
    )


def describe_data_dir(data_dir: Path, output: Path, class_paths: ClassPaths) -> None:
    """Describe every file of every partition with Kafka's tools.

    Below `output`, `dump/<partition>/<file>.txt` is what DumpLogSegments prints (`….stderr.txt`
    what it complains about, if it does), `fields/<partition>/<file>.jsonl` what BatchFields prints,
    `records/<partition>/<file>.jsonl.gz` is the output of RecordFields.
    """
    dump_data_dir(data_dir, output, class_paths)
    _run_fields(data_dir, output / "fields", class_paths.broker)
    describe_records(data_dir, output, class_paths)


def dump_data_dir(data_dir: Path, output: Path, class_paths: ClassPaths) -> None:
    """Print every file of every partition with DumpLogSegments into `dump/` below `output`."""
    files = _files(data_dir, _DUMPED_SUFFIXES)
    _run_dump(data_dir, files, output / "dump", class_paths.dump)


def describe_records(data_dir: Path, output: Path, class_paths: ClassPaths) -> None:
    """Print every record of every partition with Kafka's readers into `records/` below `output`."""
    logs = _files(data_dir, LOG_SUFFIXES)
    printed = [records_path(output, log).with_suffix("") for log in logs]
    print_records(logs, printed, data_dir.parent, class_paths)
    for log, path in zip(logs, printed, strict=True):
        # Without a time, so that the same records give the same bytes.
        records_path(output, log).write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()


def print_records(
    logs: Sequence[Path], printed: Sequence[Path], directory: Path, class_paths: ClassPaths
) -> None:
    """Write the output of RecordFields for each log; paths are relative to a directory."""
    runs = []
    for log, path in zip(logs, printed, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        runs.append([str(log.relative_to(directory)), str(path)])
    _run_java(class_paths.broker, "kafkascan.oracle.RecordFields", runs, directory)


def print_skipped(
    logs: Sequence[Path], printed: Sequence[Path], directory: Path, class_paths: ClassPaths
) -> None:
    """Write the output of SkippedFields for each log; as `print_records`."""
    runs = [
        [str(log.relative_to(directory)), str(path)]
        for log, path in zip(logs, printed, strict=True)
    ]
    _run_java(class_paths.broker, "kafkascan.oracle.SkippedFields", runs, directory)


def dump_path(output: Path, file: Path) -> Path:
    """Return the path of the dump of a partition's file."""
    return output / "dump" / file.parent.name / f"{file.name}.txt"


def fields_path(output: Path, file: Path) -> Path:
    """Return the path of the batch fields of a segment."""
    return output / "fields" / file.parent.name / f"{file.name}.jsonl"


def records_path(output: Path, file: Path) -> Path:
    """Return the path of the compressed records of a segment."""
    return output / "records" / file.parent.name / f"{file.name}.jsonl.gz"


def _files(data_dir: Path, suffixes: Sequence[str]) -> list[Path]:
    return [
        path
        for directory in partition_directories(data_dir)
        for path in sorted(directory.iterdir())
        if path.suffix in suffixes
    ]


def _run_dump(data_dir: Path, files: Iterable[Path], output: Path, class_path: str) -> None:
    runs = []
    for file in files:
        stdout = output / file.parent.name / f"{file.name}.txt"
        stderr = stdout.with_suffix(".stderr.txt")
        stdout.parent.mkdir(parents=True, exist_ok=True)
        runs.append([str(stdout), str(stderr), *_arguments(file)])
    # The tool runs in the data directory's parent, so that it prints relative paths.
    _run_java(class_path, "kafkascan.oracle.DumpAll", runs, data_dir.parent)
    for _, complaints, *_ in runs:
        _keep_complaints(Path(complaints), data_dir.parent)


def _arguments(file: Path) -> list[str]:
    arguments = ["--files", str(Path(file.parent.parent.name, file.parent.name, file.name))]
    if file.suffix in LOG_SUFFIXES:
        arguments += ["--deep-iteration", "--print-data-log"]
        arguments += [
            f"--{option}"
            for topic, option in DECODER_OPTIONS.items()
            if file.parent.name.startswith(f"{topic}-")
        ]
    return arguments


def _keep_complaints(stderr: Path, root: Path) -> None:
    """Make paths relative; delete the file if it is empty."""
    text = stderr.read_text()
    if text:
        stderr.write_text(text.replace(f"{root.resolve()}/", ""))
    else:
        stderr.unlink()


def _run_fields(data_dir: Path, output: Path, class_path: str) -> None:
    runs = []
    for log in _files(data_dir, LOG_SUFFIXES):
        fields = output / log.parent.name / f"{log.name}.jsonl"
        fields.parent.mkdir(parents=True, exist_ok=True)
        runs.append([str(log), str(fields)])
    _run_java(class_path, "kafkascan.oracle.BatchFields", runs, data_dir.parent)


def run_dump(
    arguments: Sequence[Sequence[str]], scratch: Path, class_path: str
) -> list[tuple[str, str]]:
    """Run DumpLogSegments with each list of arguments; return stdout and stderr."""
    scratch.mkdir(parents=True, exist_ok=True)
    runs = [
        [str(scratch / f"{number}.out"), str(scratch / f"{number}.err"), *one]
        for number, one in enumerate(arguments)
    ]
    _run_java(class_path, "kafkascan.oracle.DumpAll", runs, scratch)
    return [(Path(out).read_text("utf-8"), Path(err).read_text("utf-8")) for out, err, *_ in runs]


def _run_java(class_path: str, main: str, runs: list[list[str]], directory: Path) -> None:
    """Run a program that reads tab-separated runs from its standard input."""
    lines = "".join("\t".join(run) + "\n" for run in runs)
    java = subprocess.run(
        java_command(class_path, main),
        input=lines,
        cwd=directory,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if java.returncode != 0:
        raise RuntimeError(f"{main} failed:\n{java.stderr}")
