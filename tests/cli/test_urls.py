"""Commands read prefixes and objects of a store as they read directories and files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import DATA, Done, run
from tests.support.s3_server import S3Server, s3_server

pytest.importorskip("obstore")

BUCKET = "urls"
LOG = f"small-segments-0/{0:020}.log"
URL = f"s3://{BUCKET}/data"

READING = (
    "info LOGS",
    "verify LOGS",
    "batches LOGS",
    f"batches LOGS/{LOG} --format jsonl",
    "records LOGS --format jsonl",
    "records LOGS/transactions-0 --isolation read_committed",
    "count LOGS",
    "txns LOGS",
    "producers LOGS",
    f"dump-log --files LOGS/{LOG},LOGS/{LOG.replace('.log', '.index')}",
    f"dump-log --deep-iteration --print-data-log --files LOGS/{LOG}",
    "groups LOGS",
    "txn-state LOGS",
    "metadata LOGS",
    "audit LOGS --deep --now 2026-01-01",
    "index check LOGS",
    "index build LOGS",
    f"index show LOGS/{LOG.replace('.log', '.timeindex')}",
    "index show LOGS/recovery-point-offset-checkpoint",
    "index lookup LOGS/small-segments-0 --offset 100 --format jsonl",
    f"index lookup LOGS/{LOG} --offset 7 --trust-index --format jsonl",
    "salvage LOGS",
    "diff LOGS DISK",
)
WRITING = (
    "recover LOGS",
    "convert LOGS/small-segments-0 --to-magic 2 --in-place",
    "restamp LOGS/small-segments-0 --offset-shift 1 --in-place",
    "scrub LOGS/small-segments-0 --from-offset 5 --in-place",
    "salvage DISK LOGS",
    "audit LOGS --output LOGS/report.json",
    "index build LOGS --write",
)


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server(BUCKET) as found:
        found.put_folder(DATA, "data")
        yield found


@pytest.fixture(autouse=True)
def environment(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def run_on(logs: object, command: str) -> Done:
    words = (word.replace("LOGS", str(logs)) for word in command.split())
    done = run(*(DATA if word == "DISK" else word for word in words))
    plain, in_json = str(logs), json.dumps(str(logs))[1:-1]
    shown = [
        text.replace(plain, "LOGS").replace(in_json, "LOGS") for text in (done.stdout, done.stderr)
    ]
    return Done(done.returncode, *shown)


@pytest.mark.parametrize("command", READING)
def test_a_command_on_a_url(command: str) -> None:
    on_disk, in_store = run_on(DATA, command), run_on(URL, command)
    assert in_store == on_disk
    assert on_disk.returncode in (0, 1)
    assert on_disk.stdout or command.startswith("diff")


@pytest.mark.parametrize("command", WRITING)
def test_a_command_that_writes(command: str, server: S3Server) -> None:
    requests = len(server.requests)
    done = run_on(URL, command)
    assert done.returncode == 2, done
    assert "disk" in done.stderr
    assert not any(one.startswith(("PUT", "POST", "DELETE")) for one in server.requests[requests:])


def test_indexes_and_reports_from_a_url(tmp_path: Path) -> None:
    build = ("index", "build", "--interval-bytes", 100)
    for logs, output in ((URL, tmp_path / "a"), (DATA, tmp_path / "b")):
        assert run(*build, f"{logs}/small-segments-0", "--output", output).returncode == 0
    index = LOG.replace(".log", ".index")
    assert (tmp_path / "a" / index).read_bytes() == (tmp_path / "b" / index).read_bytes() != b""
    assert run("advise", URL, "--codec", "gzip", "--sample", 3).returncode == 0
    assert run("report", URL, "-o", tmp_path / "report.html").returncode in (0, 1)
    assert "small-segments" in (tmp_path / "report.html").read_text()
    assert run("salvage", f"{URL}/small-segments-0", tmp_path / "copy-0").returncode == 0
    assert run("diff", f"{URL}/small-segments-0", tmp_path / "copy-0").returncode == 0


def test_what_is_not_there() -> None:
    missing = run("batches", f"s3://{BUCKET}/nothing")
    assert missing.returncode == 3
    assert f"s3://{BUCKET}/nothing" in missing.stderr
    done = run("records", URL, "--follow")
    assert done.returncode == 2
    assert "does not grow" in done.stderr


def test_a_signature_is_not_printed() -> None:
    done = run("batches", "http://127.0.0.1:1/a.log?X-Amz-Signature=0123456789abcdef")
    assert done.returncode == 3
    assert "0123456789abcdef" not in done.stderr + done.stdout
    assert "http://127.0.0.1:1/a.log" in done.stderr
