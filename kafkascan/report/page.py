"""An HTML page about logs: summary, findings, plots, tables. It loads nothing else."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from kafkascan.analysis.codec_advice import advise
from kafkascan.analysis.producer_census import CensusCounter
from kafkascan.analysis.transactions import TransactionCollector
from kafkascan.auditing.finding_kinds import Audit, LogFinding
from kafkascan.auditing.runner import audit
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.findings import WORST_FIRST
from kafkascan.format.texts import printable
from kafkascan.format.times import milliseconds_or_now
from kafkascan.io.atomic_files import AtomicFile
from kafkascan.io.stores.urls import ObjectUrl
from kafkascan.logs.data_dir_lock import UNCLEAN_SHUTDOWN, had_clean_shutdown
from kafkascan.logs.log_dir import LogDir
from kafkascan.logs.log_finding import PartitionFilter, find_log_dir
from kafkascan.logs.opened_logs import LogsLike, LogView, at_one_moment, selected_logs
from kafkascan.logs.walking.log_walk import ControlInspector, LogWalk
from kafkascan.recovery.crash_recovery import recover
from kafkascan.recovery.recovery_results import Recovery, damage_headline, writing_command
from kafkascan.report.facts import Facts
from kafkascan.report.plots import draw, human_size
from kafkascan.report.tables import MAX_ROWS, page_tables, record_count, state_tables, time_text
from kafkascan.tables.table import plain_columns

# Findings of each kind that are listed if there are more than `MAX_ROWS`: a common kind must not
# hide others.
_MOST_OF_A_KIND = 10


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

    def __repr__(self) -> str:
        logs = f"{self.audit.path}: {len(self.audit.findings):,} findings"
        return f"<Report on {logs}, {len(self.html):,} characters of HTML>"

    def _repr_html_(self) -> str:
        return self.html


def build_report(
    logs: LogsLike,
    /,
    *,
    topics: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
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
    topics : collection of str, optional
        Topics to read of a directory or an archive; by default all.
    partitions : collection of int, optional
        Numbers of the partitions to read; by default all.
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
        If matplotlib or Jinja is not installed (``pip install 'kafkascan[report]'``).
    NotALogError
        If `logs` is a file of another kind, such as a text or an index.
    As `open_log_dir`.

    Notes
    -----
    Names of topics and directories are escaped. The page contains no scripts, and a content
    security policy that forbids them.
    """
    if not isinstance(title, str | None):
        raise TypeError(f"title must be str, not {type(title).__name__}")
    template = _template()
    if isinstance(logs, (str, os.PathLike, ObjectUrl)):
        logs = find_log_dir(logs) or logs  # listed once
    logs = selected_logs(logs, PartitionFilter.of(topics, partitions))
    facts, counter, collector = at_one_moment(
        logs, lambda views: _walked(views, threads), log_start_offset
    )
    found = audit(logs, verify=verify, threads=threads)
    transactions = collector.transactions()
    advised = None
    if advice:
        advised = advise(logs, log_start_offset=log_start_offset, threads=threads)
    name = printable(title if title is not None else _path_of(logs))
    columns = plain_columns(counter.census())
    shutdown = _shutdown(logs, found, threads, verify=verify)
    page = _page_of(name, facts, found, columns, shutdown)
    tables = [*page_tables(facts, columns, transactions, advised), *state_tables(logs, facts)]
    return Report(template.render(page, tables=tables), found)


def _walked(
    logs: Sequence[LogView], threads: int | None
) -> tuple[Facts, CensusCounter, TransactionCollector]:
    """Read logs once, for all tables."""
    walk = LogWalk(logs, threads, ControlInspector)
    facts, counter, collector = Facts.of(walk.logs), CensusCounter(walk), TransactionCollector(walk)
    for log_slice in walk:
        facts.add(log_slice)
        counter.add(log_slice)
        collector.add(log_slice)
    facts.finish()
    return facts, counter, collector


def _page_of(
    title: str,
    facts: Facts,
    found: Audit,
    producers: dict[str, list[Any]],
    shutdown: _Shutdown,
) -> dict[str, Any]:
    """Return the variables of the template, without its tables."""
    listed = _listed(found.findings)
    return {
        "title": title,
        "written": f"read at {time_text(milliseconds_or_now())} UTC",
        "shutdown": shutdown,
        "tiles": _tiles(facts, found, producers, shutdown.kind if shutdown.kind == "good" else ""),
        "difference": _difference(facts, found),
        "findings": [_finding(one) for one in listed],
        "more_findings": _more_of_each_kind(found.findings, listed),
        "plots": _plots(facts, producers),
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
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["code"] = _with_code
    return environment.from_string(text)


def _with_code(text: str) -> Any:
    """Return a text, escaped, in which what is between backticks is code."""
    from markupsafe import Markup, escape

    parts = text.split("`")
    if len(parts) % 2 == 0:  # a name contains one
        return escape(text)
    parts[1::2] = [Markup("<code>{}</code>").format(one) for one in parts[1::2]]
    return Markup("").join(parts)


def _path_of(logs: Any) -> str:
    return str(logs if isinstance(logs, (str, os.PathLike)) else getattr(logs, "path", "logs"))


def _plots(facts: Facts, producers: dict[str, list[Any]]) -> list[dict[str, Any]]:
    from markupsafe import Markup

    return [
        # Matplotlib escapes text in SVG. All other text on the page is escaped by Jinja.
        {"title": title, "sentence": sentence, "svg": Markup(svg)}
        for title, sentence, svg in draw(facts, producers)
    ]


# ---- how the broker ended --------------------------------------------------------------------


@dataclass(frozen=True)
class _Shutdown:
    """
    How a broker left its data directory, and what recovers it.

    Attributes
    ----------
    text : str
        Empty if nothing is known.
    kind : str
        How the text looks.
    recovery : str
        What a broker would do when it starts.
    changes : list of str
        Of which kinds the changes are.
    command, purpose : str
        A command, and a sentence about it.
    """

    text: str = ""
    kind: str = "good"
    recovery: str = ""
    changes: list[str] = field(default_factory=list)
    command: str = ""
    purpose: str = ""


_CLEAN = _Shutdown("A broker shut down cleanly: the next one loads these logs without recovery.")


def _shutdown(logs: LogsLike, found: Audit, threads: int | None, *, verify: bool) -> _Shutdown:
    """
    Return how a broker left its data directory, and the command that recovers it.

    Damage that no recovery removes comes first, with the command that copies the rest.
    """
    path = logs.path if isinstance(logs, LogDir) and not logs.is_partition else None
    was_clean = had_clean_shutdown(path) if isinstance(path, Path) else None
    ending = _Shutdown()
    if path is not None and was_clean is not None:
        ending = _CLEAN if was_clean else _unclean_shutdown(path, threads, verify=verify)
    if not found.damage or was_clean is False:
        return ending
    segments = {Path(os.path.abspath(one.path)) for one in found.damage}  # a page is read anywhere
    headline, command = damage_headline(found.path.absolute(), segments, is_lasting=bool(was_clean))
    return replace(
        ending,
        text=f"{headline}.",
        kind="error",
        recovery=ending.text,
        command=printable(command),
        purpose="This command copies the intact batches:",
    )


def _unclean_shutdown(path: Path, threads: int | None, *, verify: bool) -> _Shutdown:
    """Return what recovers a data directory; with `verify`, what a broker would change there."""
    path = path.absolute()  # a page is read anywhere
    ending = _Shutdown(
        f"{UNCLEAN_SHUTDOWN.capitalize()}.",
        "warning",
        command=printable(shlex.join(["kafkascan", "recover", str(path)])),
        purpose="This command shows what a broker would change, and changes nothing:",
    )
    if not verify:
        return ending
    try:
        planned = recover(path, threads=threads)
    except (KafkaScanError, OSError) as error:
        reason = f"What a broker would recover is not known: {printable(str(error))}"
        return replace(ending, recovery=reason)
    ending = replace(ending, recovery=_recovery_text(planned), changes=_kinds_of_changes(planned))
    command = writing_command(planned)
    if command is None:
        return ending
    purpose = "With the broker stopped, this command makes the changes:"
    return replace(ending, command=printable(command), purpose=purpose)


def _recovery_text(planned: Recovery) -> str:
    """Return what a broker would do to logs when it starts."""
    logs = planned.partitions
    changes = sum(len(one.changes) for one in logs)
    lost = [one for log in logs for one in log.discarded.values()]
    records = sum(one.salvageable_records for one in logs)
    failed = sum(one.error is not None for one in logs)
    of_zeros = " of zeros" if all(one.is_zeros for one in lost) else ""
    discarded = f"{planned.truncated_bytes:,} bytes{of_zeros}" if lost else "nothing"
    text = f"A broker would discard {discarded} and make {changes:,} changes when it starts."
    if records:
        text += (
            f" The discarded bytes contain {records:,} records of intact batches: `kafkascan"
            " salvage` keeps them in a copy."
        )
    return f"{text} {failed:,} logs cannot be loaded." if failed else text


def _kinds_of_changes(planned: Recovery) -> list[str]:
    """Return a line for each kind of changes, those that discard data first."""
    reasons: dict[tuple[bool, str, str], list[str]] = {}
    for log in planned.partitions:
        for one in log.changes:
            kind = not one.shortens_log, str(one.action), _kind_of(one.name)
            reasons.setdefault(kind, []).append(one.reason)
    lines = []
    for (_, action, name), found in sorted(reasons.items()):
        files = "file" if len(found) == 1 else "files"
        reason = f": {found[0]}" if len(set(found)) == 1 else ""
        lines.append(printable(f"{action} {len(found):,} {name} {files}{reason}"))
    return lines


def _kind_of(name: str) -> str:
    """Return the extension of a file; the name of one without an extension."""
    return Path(name).suffix or name


# ---- summary and findings --------------------------------------------------------------------


def _tiles(
    facts: Facts, found: Audit, producers: dict[str, list[Any]], calm: str
) -> list[dict[str, str]]:
    """Return the totals; `calm` is how it looks that there are no warnings."""
    summaries = [log.summary for log in facts.logs]
    bins = [one for one in facts.times.values() if one.sizes]
    times = "none"
    if bins:
        first, last = min(one.earliest for one in bins), max(one.latest for one in bins)
        times = f"{time_text(first)} to {time_text(last)}"
    alarms = len(found.alarms)
    worst = min((one.severity for one in found.alarms), key=WORST_FIRST.index, default=None)
    return [
        _tile("Logs", f"{len(facts.logs):,}"),
        _tile("Segments", f"{sum(log.segments for log in facts.logs):,}"),
        _tile("Size", human_size(facts.size)),
        _tile("Batches", f"{sum(one.batches for one in summaries):,}"),
        _tile("Records", record_count(facts.logs)),
        _tile("Producer ids", f"{len({one for one in producers['producer_id'] if one >= 0}):,}"),
        _tile("Latest timestamps of batches", times, "small"),
        _tile("Warnings and errors", f"{alarms:,}", str(worst) if worst else calm),
    ]


def _difference(facts: Facts, found: Audit) -> str:
    """Return why the totals of the findings are not those of the tiles; empty if they are."""
    segments = sum(log.segments for log in facts.logs)
    batches = sum(log.summary.batches for log in facts.logs)
    audited = found.segments, found.batches, found.size_in_bytes
    if audited == (segments, batches, facts.size):
        return ""
    return (
        f"Findings are about all that is on disk: {found.segments:,} files with"
        f" {found.batches:,} batches, {human_size(found.size_in_bytes)}. The totals, plots and"
        " tables are about what consumers and brokers read: no snapshots of the metadata log, no"
        " batches before the start of a log, and no batches of offsets that an earlier segment has."
    )


def _tile(label: str, value: str, kind: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "kind": kind}


def _listed(findings: Sequence[LogFinding]) -> list[LogFinding]:
    """Return the findings to list, the worst first: of many, some of each kind."""
    ordered = sorted(findings, key=lambda one: WORST_FIRST.index(one.severity))
    if len(ordered) <= MAX_ROWS:
        return ordered
    listed, of_kind = [], Counter[str]()
    for one in ordered:
        of_kind[one.symbol] += 1
        if of_kind[one.symbol] <= _MOST_OF_A_KIND:
            listed.append(one)
    return listed[:MAX_ROWS]


def _more_of_each_kind(findings: Sequence[LogFinding], listed: Sequence[LogFinding]) -> str:
    """Return the numbers of findings that are not listed; empty if all are."""
    more = Counter(one.symbol for one in findings) - Counter(one.symbol for one in listed)
    return ", ".join(f"{count:,} more {symbol}" for symbol, count in more.items())


def _finding(one: LogFinding) -> dict[str, Any]:
    return {
        "severity": str(one.severity),
        "symbol": one.symbol,
        "message": printable(one.message),
        "log": printable(_log_of(one)),
        "file": "" if one.file is None else printable(one.file),
        "position": "" if one.position is None else f"at {one.position:,}",
        "count": f"{one.count:,}",
        "advice": one.advice,
        "command": one.command,
    }


def _log_of(one: LogFinding) -> str:
    """Return the name of a finding's log."""
    return os.path.basename(one.path) if one.topic is None else f"{one.topic}-{one.partition}"
