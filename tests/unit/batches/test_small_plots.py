"""Plots of tables in notebooks: right, small, and safe whatever the log contains."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import kafkascan as ks
from kafkascan.batches.small_plots import plot_amounts, plot_over_time

DATA = Path(__file__).parents[2] / "golden" / "kafka-4.4.0" / "data"
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>]]></title></svg>"
ALLOWED = {
    "div", "pre", "figure", "figcaption", "svg", "title", "rect", "text",
    "table", "thead", "tbody", "tr", "th", "td",
}  # fmt: skip


class Elements(HTMLParser):
    """Collects the elements and attributes of a display."""

    def __init__(self, shown: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.feed(shown)
        self.close()
        assert self.open == [], "each element is closed"
        assert set(self.names) <= ALLOWED
        assert not any(name.startswith("on") for name in self.attributes)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


def heights(shown: str) -> list[int]:
    return [int(one) for one in re.findall(r'height="(\d+)"/>', shown)]


def test_a_scan_shows_its_bytes_over_time() -> None:
    one_each = [ks.build_batches({"value": [b"x"], "timestamp": [at]}) for at in range(0, 600, 2)]
    scan = ks.scan_batches(b"".join(one_each))
    shown = scan._repr_html_()
    assert "Bytes by max_timestamp, 1970-01-01T00:00:00 to" in shown
    assert Elements(shown).names.count("rect") == 60
    assert len(shown) < 20_000


def test_bars_are_in_proportion() -> None:
    times = np.array([1_000, 1_000, 1_000, 1_000, 2_000, 3_000], np.int64)
    assert heights(plot_over_time("n", times)) == [64, 16, 16]
    weights = np.array([1, 1, 1, 1, 8, -5], np.int64)
    shown = plot_over_time("n", times, weights)
    assert heights(shown) == [32, 64]
    assert "n, 1970-01-01T00:00:01 to 1970-01-01T00:00:03; at most 8" in shown


def test_times_that_cannot_be_are_counted_and_left_out() -> None:
    times = np.array([-1, 1_000, 2_000, 2**63 - 1, -(2**63)], np.int64)
    shown = plot_over_time("n", times)
    assert "3 without a time" in shown
    assert heights(shown) == [64, 64]


@pytest.mark.parametrize("times", [[], [5], [5, 5], [-1, -1], [2**62, 2**63 - 1]])
def test_without_a_span_of_time_there_is_no_plot(times: list[int]) -> None:
    assert plot_over_time("n", np.array(times, np.int64)) == ""


def test_amounts_are_ordered_and_others_are_counted() -> None:
    shown = plot_amounts("Bytes", {f"topic-{size}": size * 1_000 for size in range(20)})
    assert re.findall(r"([\d,]+) topic-\d+</text>", shown) == [
        f"{size},000" for size in range(19, 11, -1)
    ]
    assert "and 12 others" in shown
    assert plot_amounts("Bytes", {"a": 1}) == ""
    Elements(plot_amounts("Bytes", {"a": 0, "b": 0}))


def test_records_and_log_dirs_have_plots() -> None:
    records = ks.read_records(DATA / "codecs-java-0")
    assert "Records by timestamp" in records._repr_html_()
    Elements(records._repr_html_())
    assert "<svg" not in ks.read_records(DATA / "codecs-java-0", columns=["key"])._repr_html_()
    shown = ks.scan_log_dir(DATA)._repr_html_()
    assert "Bytes of segments by topic; and" in shown
    Elements(shown)


def test_keys_values_and_names_cannot_inject_html(tmp_path: Path) -> None:
    hostile = HOSTILE.encode()
    log = ks.build_batches(
        {
            "key": [hostile, hostile],
            "value": [hostile, None],
            "timestamp": [1_000, 2_000],
            "headers": [[(hostile, hostile)], []],
        }
    )
    Elements(ks.read_records(log)._repr_html_())
    name = HOSTILE.replace("/", "|")
    for topic in (name, "plain", "bytes\udcff"):
        folder = tmp_path / f"{topic}-0"
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(log)
    shown = ks.scan_log_dir(tmp_path)._repr_html_()
    Elements(shown)
    assert "&lt;script&gt;" in shown
    Elements(ks.scan_batches(tmp_path / f"{name}-0" / f"{0:020}.log")._repr_html_())
    Elements(plot_amounts(HOSTILE, {HOSTILE: 1, "b\udcff": 2}))
