"""Commands that read logs, each with what of its answer has to be true of one moment."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from kafkascan.report import page
from tests.moving.answers import CHANGED, Answer, Reader, empty_log, printed, without_place
from tests.support.command_line import run

OTHER_VERBS = {
    "convert": "writes a log, and refuses one that a cleaner is changing",
    "restamp": "writes a log, and refuses one that a cleaner is changing",
    "scrub": "writes a log, and refuses one that a cleaner is changing",
    "share-state": "reads a topic that no history has",
    "remote-segments": "reads a topic that no history has",
    "schemas": "reads a topic that no history has",
    "recover": "fails if a broker uses the data dir",
    "restore": "reads remote storage, whose objects do not change",
    "spark": "runs on Spark; see the tasks among the functions",
}
"""Verbs that read no log of a history, with reasons."""


def _alarms(audit: Reader) -> Reader:
    def answer(path: Path) -> Answer:
        findings, *rest = audit(path)
        alarms = (one for one in findings if one[0] != "'note'" or one[1].strip("'") in CHANGED)
        return tuple(alarms), *rest

    return answer


def _compared(path: Path) -> Answer:
    """Compare a log with an empty one of the same name."""
    with empty_log(path.name) as still:
        return printed("diff", "LOG", still)(path)


def _checked(path: Path) -> Answer:
    """Return the errors of each index; entries and the zeros after them are written meanwhile."""
    rows, *rest = printed("index", "check", "LOG")(path)
    return tuple(row[:4] + row[6:8] for row in rows), *rest


def _dumped(path: Path) -> Answer:
    """Dump the first segment, or say that it is gone since it was named."""
    first = min(path.glob("*.log"), default=path / "0.log")
    answer = printed("dump-log", "--files", first, "--print-data-log")(path)
    is_gone = "No such file" in repr(answer[1]) and not first.exists()
    return ("error", "FILE_GONE") if is_gone else answer


def _info_by_topic(path: Path) -> Answer:
    """Return for each topic its row without its share of all, and the messages about its logs."""
    rows, messages, code = printed("info", "DATA", "--by", "topic")(path)
    topics = (row[0].strip("'") for row in rows)
    about = [tuple(line for line in messages if f"/{topic}-" in line) for topic in topics]
    return tuple((row[:5] + row[6:], lines) for row, lines in zip(rows, about, strict=True)), code


def _reported(path: Path) -> Answer:
    """Return the rows of the tables of a page."""
    with pytest.MonkeyPatch.context() as patches, tempfile.TemporaryDirectory() as folder:
        patches.setattr(page, "draw", lambda *_: [])  # of what was read; it takes seconds
        patches.setattr(page, "milliseconds_or_now", lambda: 0)
        html = Path(folder, "page.html")
        done = run("report", path, "--output", html)
        written = without_place(html.read_text(), path) if html.exists() else ""
        return tuple(re.findall("<tr>.*?</tr>", written, re.DOTALL)), done.returncode


_SQL = "SELECT * FROM"

VERBS: dict[str, Reader] = {
    "records": printed("records", "LOG", "--columns", "offset,key"),
    "records --tail": printed("records", "LOG", "--columns", "offset,key", "--tail", "3"),
    "records committed": printed(
        "records", "LOG", "--columns", "offset,key", "--isolation", "read_committed"
    ),
    "records sorted": printed("records", "LOG", "--columns", "offset,key", "--sort", "-timestamp"),
    "records --around": printed("records", "LOG", "--columns", "offset,key", "--around", "9"),
    "batches": printed("batches", "LOG", "--verify"),
    "batches --tail": printed("batches", "LOG", "--tail", "3"),
    "batches --from-offset": printed("batches", "LOG", "--from-offset", "9"),
    "verify": printed("verify", "LOG"),
    "info": printed("info", "LOG"),
    "info of data dir": _info_by_topic,
    "count": printed("count", "LOG"),
    "txns": printed("txns", "LOG", "--state", "all"),
    "producers": printed("producers", "LOG"),
    "advise": printed(
        "advise",
        "LOG",
        "--codec",
        "gzip:1",
        "--columns",
        "batches,records_bytes,stored_bytes,compressed_bytes",
    ),
    "dump-log": _dumped,
    "sql records": printed("sql", 'SELECT "offset", "key" FROM records', "LOG"),
    "sql batches": printed("sql", f"{_SQL} batches", "LOG"),
    "sql transactions": printed("sql", f"{_SQL} transactions", "LOG"),
    "sql producers": printed("sql", f"{_SQL} producers", "LOG"),
    "sql counts": printed("sql", f"{_SQL} counts", "LOG"),
    "audit": _alarms(printed("audit", "LOG", "--deep")),
    "audit of data dir": _alarms(printed("audit", "DATA")),
    "audit with notes": printed("audit", "LOG", "--deep"),
    "index check": _checked,
    "index lookup": printed("index", "lookup", "LOG", "--offset", "9"),
    "salvage": printed("salvage", "LOG"),
    "diff": _compared,
    "report": _reported,
}
VERBS_OF_STATE: dict[str, Reader] = {
    "groups": printed("groups", "DATA/__consumer_offsets-0"),
    "txn-state": printed("txn-state", "DATA/__transaction_state-0"),
    "metadata": printed("metadata", "DATA/__cluster_metadata-0", "--show", "configs"),
}
"""Those that read Kafka's own topics, which only recorded histories have."""
VERB_READERS = VERBS | VERBS_OF_STATE
