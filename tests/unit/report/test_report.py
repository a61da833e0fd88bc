"""The HTML page about logs. tests/oracle checks how a browser renders it."""

from __future__ import annotations

import html.parser
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import kafkascan as ks
from kafkascan.logs.opened_logs import open_logs
from kafkascan.logs.walking.log_walk import ControlInspector, LogWalk
from kafkascan.report.facts import Facts, TimeBins, Timeline, are_plausible
from kafkascan.report.plots import _batching, _parts, human_size
from kafkascan.report.tables import MAX_ROWS, page_table, time_text
from tests.support.command_line import KILLED
from tests.support.paths import GOLDEN
from tests.support.segments import Rig, batch_v2

DATA = GOLDEN / "kafka-4.4.0" / "data"


def gather(path: Path) -> Facts:
    """Return the statistics of all logs."""
    walk = LogWalk(open_logs(path), None, ControlInspector)
    facts = Facts.of(walk.logs)
    for log_slice in walk:
        facts.add(log_slice)
    facts.finish()
    return facts


class Tags(html.parser.HTMLParser):
    """Tags of the page, and attributes that link to other resources."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v]
        assert not any(name.startswith("on") for name, _ in attrs)


def test_the_page_of_real_logs() -> None:
    report = ks.build_report(DATA, advice=True)
    found = Tags(report.html)
    assert found.tags.isdisjoint({"script", "img", "iframe", "object", "link", "base"})
    assert all(link.startswith("#") for link in found.links)
    assert "default-src 'none'" in report.html
    assert report.html.count("<svg ") == 6
    for text in ("codecs-java-0", "FUTURE_TIMESTAMP", "zstd, level 3", "producer"):
        assert text in report.html
    ids = re.findall(r'\bid="([^"]*)"', report.html)
    assert len(ids) == len(set(ids))
    # All placeholder colours are replaced.
    assert re.search(r"#0102\w\w", report.html) is None


def test_plots_say_what_they_show_and_codecs_look_the_same_everywhere() -> None:
    page = ks.build_report(DATA).html
    plots = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(plots) == 6
    assert all(re.search(r' aria-label="[^"]+"><title>', plot) for plot in plots)
    sizes, codecs = (
        next(plot for plot in plots if f'aria-label="{title}' in plot)
        for title in ("Batch sizes", "Codecs")
    )
    # The topic `timestamps` has batches of 1970 and of the far future.
    assert " 3 batches without a plausible timestamp are left out." in page
    for topic in ("codecs-java", "small-segments", "transactions"):
        assert f">{topic}<" in codecs
    has_units = [re.search(r">[\d.]+ ([KMG]i)?B<", plot) is not None for plot in plots]
    assert has_units == ["Timestamps along the log" not in plot for plot in plots]
    for plot in (sizes, codecs):
        for number in range(1, 6):
            assert f"var(--series-{number})" in plot
        assert plot.count("<pattern ") >= 4, "codecs differ without colours, too"


def test_topics_come_first_and_their_partitions_are_folded() -> None:
    page = ks.build_report(DATA).html
    headings = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert headings == [
        "Findings",
        "Plots",
        "Topics",
        "Open transactions",
        "Producers",
        "Consumer groups",
        "Transactions that coordinators have not finished",
    ]
    targets = re.findall(r'<a href="#([^"]*)">', page)
    assert len(targets) == len(headings)
    assert all(f'id="{target}"' in page for target in targets)
    folded = re.findall(r"<summary>([^<]*)</summary>", page)
    assert "partitions: 3 partitions, 724 B" in folded
    assert folded[-1] == "27 rows, one for each producer and log"
    # Every log is listed once.
    facts = gather(DATA)
    for log in facts.logs:
        assert (
            page.count(f'data-label="Log">{log.name}</td><td class="number" data-label="Size"') == 1
        )


def test_a_list_that_is_cut_says_how_many_are_left_out(tmp_path: Path) -> None:
    log = b"".join(
        batch_v2(b"payload", base_offset=row, producer_id=row, producer_epoch=0, base_sequence=0)
        for row in range(250)
    )
    (tmp_path / "wide-0").mkdir()
    (tmp_path / "wide-0" / f"{0:020}.log").write_bytes(log)
    page = ks.build_report(tmp_path).html
    assert "<summary>250 rows, one for each producer and log</summary>" in page
    assert '<p class="more">and 50 more</p>' in page


def test_producer_0_is_not_a_log_without_producers(tmp_path: Path) -> None:
    known = {"producer_epoch": 0, "base_sequence": 0}
    log = batch_v2(b"payload", producer_id=0, **known) + batch_v2(b"payload", base_offset=1)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(log)
    page = ks.build_report(tmp_path).html
    plot = next(
        one for one in re.findall(r"<svg .*?</svg>", page, re.DOTALL) if "producer 0" in one
    )
    assert "no producer id" in plot
    assert set(re.findall(r'data-label="Producer">([^<]*)<', page)) == {"0", "none"}


def test_a_common_finding_does_not_hide_others(tmp_path: Path) -> None:
    log = batch_v2(b"payload")
    for number in range(220):
        folder = tmp_path / f"many-{number:03}"
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(log)
    (tmp_path / "many-219" / f"{7:020}.log.swap").write_bytes(b"")
    report = ks.build_report(tmp_path, verify=False)
    kinds = {one.symbol for one in report.audit.findings}
    assert {"MISSING_INDEX", "LEFTOVER"} <= kinds
    listed = re.findall(r'data-label="Finding">.*?<code class="soft">(\w+)</code>', report.html)
    assert set(listed) == kinds
    assert listed.count("MISSING_INDEX") == 10
    assert "and 210 more MISSING_INDEX" in report.html


def test_markers_make_no_saw_of_a_timeline() -> None:
    transactions = next(log for log in gather(DATA).logs if log.topic == "transactions")
    assert max(transactions.timeline.times) < 1_714_100_000_000, "markers have later times"


def test_names_are_escaped(tmp_path: Path) -> None:
    names = ("<script>alert(1)<!--", "$\\frac{1}{0}$", "\"'><img src=x onerror=alert(1)>",
             "]]><![CDATA[&amp;", "\x1b[31m\u202e", "_x", "\udcff")  # fmt: skip
    for number, name in enumerate(names):
        folder = tmp_path / f"{name}-{number}"
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(batch_v2(b"payload") + b"\xff" * 70)
    report = ks.build_report(tmp_path, title="</title><b>")
    assert Tags(report.html).tags.isdisjoint({"script", "img", "b"})
    report.write(tmp_path / "page.html")
    assert "&lt;script&gt;alert(1)" in (tmp_path / "page.html").read_text()


def test_empty_logs(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.log").touch()
    for logs in (tmp_path, b""):
        assert "<svg" not in ks.build_report(logs).html


def test_extreme_numbers() -> None:
    """Timestamps outside of the calendar, offsets near the maximum."""
    times = [-1, 0, 2**62, -(2**63), 2**63 - 1]
    log = b"".join(
        batch_v2(b"payload", base_offset=row, max_timestamp=time, base_timestamp=time)
        for row, time in enumerate(times)
    )
    log += batch_v2(b"payload", base_offset=2**62, records_count=0)
    assert "without a plausible timestamp are left out" in ks.build_report(log).html


def test_time_bins_are_bounded() -> None:
    now = time.time_ns() // 1_000_000
    bins, total = TimeBins(), 0
    rng = np.random.default_rng(1)
    for spread in (1, 10**6, 10**11, 10**12):
        times = now - rng.integers(0, spread, 1000)
        sizes = rng.integers(61, 9999, 1000)
        bins.add(times, sizes)
        total += int(sizes.sum())
        assert len(bins.sizes) <= 400
        assert sum(bins.sizes.values()) == total


def test_a_timeline_is_bounded_and_evenly_spaced() -> None:
    log = b"".join(batch_v2(b"", base_offset=row) for row in range(9000))
    batches = ks.scan_batches(log).batches
    timeline = Timeline()
    for start in range(0, 9000, 777):
        part = batches[start : start + 777]
        timeline.add(part, are_plausible(part["max_timestamp"]))
    assert 500 < len(timeline.offsets) <= 1500
    assert len(set(np.diff(timeline.offsets).tolist())) == 1


def test_facts() -> None:
    facts = gather(DATA)
    assert facts.size == sum(path.stat().st_size for path in DATA.glob("*/*.log"))
    assert sum(log.summary.batches for log in facts.logs) == int(
        sum(count.sum() for count in facts.sizes.values())
    )


def test_rows_that_are_left_out_are_not_formatted() -> None:
    formatted = []

    def row_of(number: int) -> list[str]:
        formatted.append(number)
        return [str(number)]

    table = page_table("Numbers", {"Number": True}, range(1000), row_of, noun="numbers")
    assert formatted == list(range(MAX_ROWS))
    assert (table.count, table.more, table.summary) == (1000, 1000 - MAX_ROWS, "1,000 numbers")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_714_000_000_999, "2024-04-24 23:06:40"),
        (253_402_300_799_999, "9999-12-31 23:59:59"),
        (253_402_300_800_000, "253402300800000"),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times(milliseconds: int, text: str) -> None:
    assert time_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 kB"), (5 * 10**12, "5 TB")]
)
def test_sizes(size: int, text: str) -> None:
    assert human_size(size) == text


def cells_of_groups(page: str) -> list[list[str]]:
    (section,) = re.findall(r"<h2[^>]*>Consumer groups.*?</table>", page, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in rows[1:]]


def test_groups_are_listed_by_their_lag() -> None:
    found = cells_of_groups(ks.build_report(GOLDEN / "kafka-2.8.2-groups" / "data").html)
    assert [row[:5] for row in found] == [
        ["oracle-java-transactional", "consumed-0", "3", "7", "10"],
        ["oracle-java-classic", "consumed-0", "0", "10", "10"],
        ["oracle-librdkafka", "consumed-0", "0", "10", "10"],
    ]
    assert "Consumer groups" not in ks.build_report(DATA / "consumed-0").html


def test_groups_say_if_they_are_incomplete_or_why_they_are_missing(tmp_path: Path) -> None:
    source = GOLDEN / "kafka-2.8.2-groups" / "data" / "__consumer_offsets-0"
    (log,) = source.glob("*.log")
    folder = tmp_path / source.name
    folder.mkdir()
    data = bytearray(log.read_bytes())
    last = ks.scan_batches(bytes(data)).batches[-1]
    data[int(last["position"]) + 61 :] = b"\xff" * (len(data) - int(last["position"]) - 61)
    (folder / log.name).write_bytes(data)
    assert "Consumer groups (incomplete)" in ks.build_report(tmp_path).html
    alone = ks.build_report(folder / log.name).html
    assert "The groups cannot be read: " in alone


def test_transactions_that_coordinators_have_not_finished() -> None:
    html = ks.build_report(DATA).html
    title = "Transactions that coordinators have not finished"
    section = html[html.index(f">{title}</h2>") :]
    (row,) = re.findall(r"<tr>(.*?)</tr>", section[: section.index("</table>")], re.DOTALL)[1:]
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
    states = ks.internal_topics.read_transaction_state(DATA).transactions
    (ongoing,) = states.where(status="Ongoing").rows()
    assert cells[:3] == ["left-open", "Ongoing", str(ongoing["producer_id"])]
    assert "transactions-0" in cells[3]
    assert title not in ks.build_report(GOLDEN / "kafka-4.4.0-tiered" / "data").html


@pytest.mark.parametrize("run", ["kafka-2.8.2", "kafka-4.4.0", "kafka-4.4.0-killed"])
def test_totals_are_those_of_the_audit_or_the_page_says_why_not(run: str) -> None:
    report = ks.build_report(GOLDEN / run / "data")
    tiles = dict(re.findall(r"<dt>(.*?)</dt><dd[^>]*>(.*?)</dd>", report.html))
    segments, batches = (int(tiles[name].replace(",", "")) for name in ("Segments", "Batches"))
    assert int(tiles["Logs"]) == report.audit.logs
    scanned = ks.scan_log_dir(GOLDEN / run / "data")
    assert batches == scanned.to_arrow().num_rows
    is_same = (segments, batches) == (report.audit.segments, report.audit.batches)
    assert is_same == (run == "kafka-2.8.2")
    explained = f"{report.audit.segments:,} files with {report.audit.batches:,} batches"
    assert (explained in report.html) != is_same


def test_the_page_begins_with_how_the_broker_ended(tmp_path: Path) -> None:
    killed = tmp_path / "a b"
    shutil.copytree(KILLED, killed)
    page = ks.build_report(killed).html
    assert "A broker would discard 62,741 bytes of zeros and make 7 changes when it" in page
    assert "<li>truncate 1 .log file: zeros follow the last batch</li>" in page
    assert "With the broker stopped, this command makes the changes:" in page
    assert f"kafkascan recover &#39;{killed}&#39; --write --truncate</pre>" in page
    assert page.index("Not shut down cleanly") < page.index("Warnings and errors")
    assert 'class="good"' not in page
    headers_only = ks.build_report(killed, verify=False).html
    assert "Not shut down cleanly" in headers_only
    assert "would discard" not in headers_only
    assert "This command shows what a broker would change" in headers_only
    assert f"kafkascan recover &#39;{killed}&#39;</pre>" in headers_only
    (killed / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    page = ks.build_report(killed).html
    assert "A broker shut down cleanly" in page
    assert 'class="good"' in page
    assert "shut down cleanly" not in ks.build_report(DATA / "headers-0").html


@pytest.mark.parametrize("is_data_dir", [True, False])
def test_damage_is_the_headline_of_a_page(is_data_dir: bool, tmp_path: Path) -> None:
    log = tmp_path / "a b" / "headers-0" / f"{0:020}.log"
    shutil.copytree(DATA / "headers-0", log.parent)
    data = log.parent.parent
    (data / "meta.properties").write_text("version=1\n")
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    damaged = bytearray(log.read_bytes())
    damaged[100] ^= 1
    log.write_bytes(damaged)
    page = ks.build_report(data if is_data_dir else log.parent).html
    headline = '<p class="ending error">1 segment is damaged: consumers fail there'
    assert page.index(headline) < page.index("Warnings and errors")
    assert f"kafkascan salvage &#39;{log.parent}&#39; COPY</pre>" in page
    assert 'class="good"' not in page
    assert ("a broker does not look there when it starts" in page) == is_data_dir
    assert ("A broker shut down cleanly" in page) == is_data_dir


def test_the_page_says_what_a_recovery_changes_and_discards(tmp_path: Path) -> None:
    killed = tmp_path / "data"
    shutil.copytree(KILLED, killed)
    for number in range(3):
        folder = killed / f"new-{number}"
        folder.mkdir()
        data = bytearray(Rig().batches(10).log)
        data[4 * 68 + 8] = 1  # a length that exceeds the file
        (folder / f"{0:020}.log").write_bytes(data[: len(data) - 68 * number])
    page = ks.build_report(killed).html
    assert "<li>write 3 leader-epoch-checkpoint files: the leader epochs of the log</li>" in page
    assert "<li>truncate 4 .log files</li>" in page  # for several reasons
    assert "contain 12 records of intact batches: <code>kafkascan salvage</code> keeps" in page
    assert "save them with <code>kafkascan salvage</code>." in page
    assert "`" not in page


def test_implausible_times_are_not_in_the_summary() -> None:
    page = ks.build_report(DATA).html
    (tile,) = re.findall(r"Latest timestamps of batches</dt><dd[^>]*>([^<]*)<", page)
    assert tile.startswith("2024-04-24")
    assert "5138" not in tile


def test_long_gaps_are_cut_out() -> None:
    assert _parts(np.array([3])) == {0: (3, 3)}
    found = _parts(np.array([0, 5, 9, 60, 99]))
    assert list(found.values()) == [(0, 9), (60, 60), (99, 99)]
    assert list(found) == pytest.approx([0, 10.72, 12.44])
    assert _parts(np.arange(0, 100, 20)) == {0: (0, 80)}
    assert _parts(np.array([0, 7])) == {0: (0, 7)}


def test_points_at_the_same_place_are_drawn_once() -> None:
    columns = {
        "batches": [10, 20, 10],
        "records": [100, 200, 10],
        "size_in_bytes": [900, 1_800, 90],
    }
    paint, axes = _batching(columns), Figure().add_subplot()
    assert paint is not None
    paint(axes)
    (points,) = axes.collections
    assert np.asarray(points.get_offsets()).tolist() == [[10, 90], [1, 9]]
    assert points.get_sizes().tolist() == [132, 18], "that of the most bytes"
