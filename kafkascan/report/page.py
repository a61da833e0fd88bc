"""An HTML page about logs: summary, findings, plots, tables. It loads nothing else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from kafkascan.analysis.codec_advice import Advice, advise
from kafkascan.analysis.producer_census import read_producers
from kafkascan.auditing.finding_kinds import Audit
from kafkascan.auditing.runner import audit
from kafkascan.batches.columns import as_datetime64
from kafkascan.format.findings import Severity
from kafkascan.format.texts import printable
from kafkascan.format.times import milliseconds_or_now
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.logs.opened_logs import LogsLike
from kafkascan.report.facts import Facts, LogFacts, gather
from kafkascan.report.plots import draw, human_size

_MAX_ROWS = 200
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@dataclass(frozen=True)
class Report:
    """
    An HTML page about logs; the result of `build_report`.

    Attributes
    ----------
    html : str
        The page. It is self-contained: no scripts, no other files, no network.
    audit : Audit
        The audit whose findings the page lists.
    """

    html: str
    audit: Audit

    def write(self, path: str | os.PathLike[str], /) -> None:
        """Write the page to a file, which is replaced atomically."""
        with AtomicFile(Path(path)) as file:
            file.stream.write(self.html.encode("utf-8", "backslashreplace"))

    def _repr_html_(self) -> str:
        return self.html


def build_report(
    logs: LogsLike,
    /,
    *,
    title: str | None = None,
    verify: bool = True,
    advice: bool = False,
    log_start_offset: int | None = None,
    threads: int | None = None,
) -> Report:
    """
    Build an HTML page about logs: a summary, findings, plots and tables.

    Parameters
    ----------
    logs : path, LogDir, PartitionDir, bytes-like, Source or SegmentFile
        A broker's data dir, the folder of a partition, a tar of them, or a segment.
    title : str, optional
        Title of the page; by default the path.
    verify : bool, default True
        Verify the checksums of all batches, or read batch headers only.
    advice : bool, default False
        Also compress samples with other codecs (`advise`).
    log_start_offset : int, optional
        First offset of each log; see `read_transactions`. Findings are about all that is on disk.
    threads : int, optional
        Number of threads; by default one per CPU.

    Returns
    -------
    Report

    Raises
    ------
    ImportError
        If matplotlib or Jinja is not installed (``pip install kafkascan[report]``).
    As `open_log_dir`.

    Notes
    -----
    Names of topics and directories are escaped. The page contains no scripts, and a content
    security policy that forbids them.
    """
    template = _template()
    facts = gather(logs, threads, log_start_offset)
    found = audit(logs, verify=verify, threads=threads)
    census = read_producers(logs, log_start_offset=log_start_offset, threads=threads)
    advised = None
    if advice:
        advised = advise(logs, log_start_offset=log_start_offset, threads=threads)
    name = printable(title if title is not None else _path_of(logs))
    return Report(
        template.render(_page_of(name, facts, found, census.to_columns(), advised)), found
    )


def _page_of(
    title: str,
    facts: Facts,
    found: Audit,
    producers: dict[str, list[Any]],
    advised: Advice | None,
) -> dict[str, Any]:
    """Return the variables of the template."""
    return {
        "title": title,
        "written": f"read at {_time(milliseconds_or_now())} UTC",
        "tiles": _tiles(facts, found, producers),
        "findings": _findings(found)[:_MAX_ROWS],
        "more_findings": max(0, len(found) - _MAX_ROWS),
        "plots": _plots(facts, producers),
        "tables": [one for one in _tables(facts, producers, advised) if one["rows"]],
        "version": version("kafkascan"),
    }


def _template() -> Any:
    try:
        import jinja2
        import matplotlib  # noqa: F401 - fails before anything is read
    except ImportError as error:
        raise ImportError(
            "this needs matplotlib and Jinja2: pip install 'kafkascan[report]'"
        ) from error
    text = (files("kafkascan.report") / "page.html.j2").read_text("utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(text)


def _path_of(logs: Any) -> str:
    return str(logs if isinstance(logs, (str, os.PathLike)) else getattr(logs, "path", "logs"))


def _plots(facts: Facts, producers: dict[str, list[Any]]) -> list[dict[str, Any]]:
    from markupsafe import Markup

    return [
        # Matplotlib escapes text in SVG. All other text on the page is escaped by Jinja.
        {"title": title, "sentence": sentence, "svg": Markup(svg)}
        for title, sentence, svg in draw(facts, producers)
    ]


# ---- summary and findings --------------------------------------------------------------------


def _tiles(facts: Facts, found: Audit, producers: dict[str, list[Any]]) -> list[dict[str, str]]:
    summaries = [log.summary for log in facts.logs]
    first = [one.first_timestamp for one in summaries if one.first_timestamp is not None]
    last = [one.max_timestamp for one in summaries if one.max_timestamp is not None]
    uncounted = any(one.uncounted_batches for one in summaries)
    times = f"{_time(min(first))} to {_time(max(last))}" if first else "none"
    alarms = len(found.alarms)
    worst = min((one.severity for one in found.alarms), key=_SEVERITIES.index, default=None)
    return [
        _tile("Logs", f"{len(facts.logs):,}"),
        _tile("Segments", f"{sum(log.segments for log in facts.logs):,}"),
        _tile("Size", human_size(facts.size)),
        _tile("Batches", f"{sum(one.batches for one in summaries):,}"),
        _tile("Records", f"{'≥ ' * uncounted}{sum(one.records for one in summaries):,}"),
        _tile("Producer ids", f"{len({one for one in producers['producer_id'] if one >= 0}):,}"),
        _tile("Latest timestamps of batches", times, "small"),
        _tile("Warnings and errors", f"{alarms:,}", str(worst) if worst else "good"),
    ]


def _tile(label: str, value: str, kind: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "kind": kind}


def _findings(found: Audit) -> list[dict[str, Any]]:
    ordered = sorted(found.findings, key=lambda one: _SEVERITIES.index(one.severity))
    return [
        {
            "severity": str(one.severity),
            "symbol": one.symbol,
            "message": printable(one.message),
            "location": printable(_location(one)),
            "count": f"{one.count:,}",
            "advice": one.advice,
        }
        for one in ordered
    ]


def _location(one: Any) -> str:
    log = os.path.basename(one.path) if one.topic is None else f"{one.topic}-{one.partition}"
    file = "" if one.file is None else f"/{one.file}"
    position = "" if one.position is None else f" at {one.position}"
    return f"{log}{file}{position}"


# ---- tables ----------------------------------------------------------------------------------


def _tables(
    facts: Facts, producers: dict[str, list[Any]], advised: Advice | None
) -> list[dict[str, Any]]:
    tables = [_log_table(facts), _producer_table(producers)]
    return tables if advised is None else [*tables, _advice_table(advised)]


def _table(title: str, columns: dict[str, bool], rows: list[list[str]]) -> dict[str, Any]:
    """Return a table; `columns` maps titles to whether the column contains numbers."""
    return {
        "title": title,
        "columns": [{"title": name, "is_number": number} for name, number in columns.items()],
        "rows": rows[:_MAX_ROWS],
        "more": max(0, len(rows) - _MAX_ROWS),
    }


def _log_table(facts: Facts) -> dict[str, Any]:
    columns = {
        "Log": False, "Size": True, "Segments": True, "Batches": True, "Records": True,
        "First offset": True, "Last offset": True, "Latest timestamp": False, "Codecs": False,
    }  # fmt: skip
    ordered = sorted(facts.logs, key=lambda log: -log.size)
    return _table("Logs", columns, [_log_row(log) for log in ordered])


def _log_row(log: LogFacts) -> list[str]:
    one = log.summary
    return [
        printable(log.name),
        human_size(log.size),
        f"{log.segments:,}",
        f"{one.batches:,}",
        f"{'≥ ' * bool(one.uncounted_batches)}{one.records:,}",
        "" if one.first_offset is None else f"{one.first_offset:,}",
        "" if one.last_offset is None else f"{one.last_offset:,}",
        "" if one.max_timestamp is None else _time(one.max_timestamp),
        ", ".join(one.codecs),
    ]


def _producer_table(columns: dict[str, list[Any]]) -> dict[str, Any]:
    titles = {
        "Producer": True, "Epoch": True, "Log": False, "Batches": True, "Records": True,
        "Size": True, "Bytes per batch": True, "Linger, ms": True, "Codecs": False,
        "Sequence gaps": True, "Last written": False,
    }  # fmt: skip
    names = (
        "producer_id", "producer_epoch", "topic", "partition", "batches", "records",
        "size_in_bytes", "mean_batch_size", "mean_span_ms", "codecs", "sequence_gaps",
        "last_timestamp",
    )  # fmt: skip
    rows = sorted(zip(*(columns[name] for name in names), strict=True), key=lambda row: -row[6])
    return _table("Producers", titles, [_producer_row(*row) for row in rows])


def _producer_row(
    producer: int,
    epoch: int,
    topic: str | None,
    partition: int | None,
    batches: int,
    records: int,
    size: int,
    mean_size: float | None,
    span: float | None,
    codecs: str,
    gaps: int,
    last: int,
) -> list[str]:
    return [
        "none" if producer < 0 else str(producer),
        "" if epoch < 0 else str(epoch),
        "" if topic is None else printable(f"{topic}-{partition}"),
        f"{batches:,}",
        f"{records:,}",
        human_size(size),
        "" if mean_size is None else f"{mean_size:,.0f}",
        "" if span is None else f"{span:,.1f}",
        codecs,
        f"{gaps:,}",
        "" if last < 0 else _time(last),
    ]


def _advice_table(advised: Advice) -> dict[str, Any]:
    columns = {
        "Topic": False, "Codec": False, "Ratio": True, "Saving": True,
        "Compression, MB/s": True, "Decompression, MB/s": True, "Sampled batches": True,
    }  # fmt: skip
    rows = [
        [
            printable(one.topic or ""),
            one.codec if one.level is None else f"{one.codec}, level {one.level}",
            f"{one.ratio:.2f}",
            f"{100 * one.saving:.0f} %",
            "" if one.compress_mb_per_s is None else f"{one.compress_mb_per_s:,.0f}",
            "" if one.decompress_mb_per_s is None else f"{one.decompress_mb_per_s:,.0f}",
            f"{one.batches:,}",
        ]
        for group in advised.groups
        for one in group.trials
    ]
    return _table("Other codecs", columns, rows)


def _time(milliseconds: int) -> str:
    import numpy as np

    try:
        (time,) = as_datetime64(np.array([milliseconds], np.int64)).tolist()
        return f"{time:%Y-%m-%d %H:%M:%S}"
    except (ValueError, TypeError, OverflowError):
        return str(milliseconds)
