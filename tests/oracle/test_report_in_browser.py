"""The report in a real browser: it loads and runs nothing and fits the page."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkascan as ks
from tests.support.logs import WrittenLog
from tests.support.paths import GOLDEN

pytestmark = pytest.mark.oracle

sync_api = pytest.importorskip("playwright.sync_api", reason="needs: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

NAMES = (
    "orders", "<script>alert(1)<!--", "$\\frac{1}{0}$", "\"'><img src=x onerror=alert(1)>",
    "_hidden", "\x1b[31mred\u202e", "]]><![CDATA[&amp;", "a" * 180,
)  # fmt: skip


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("logs")
    for number, name in enumerate(NAMES):
        folder = root / f"{name}-{number}"
        folder.mkdir()
        log = WrittenLog(random.Random(number)).write(60, list(range(4)))
        (folder / f"{0:020}.log").write_bytes(log.log)
    path = tmp_path_factory.mktemp("page") / "report.html"
    ks.build_report(root, title="<b>&title", advice=True).write(path)
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 500, 1280])
def test_the_page(browser: Any, page_file: Path, scheme: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    assert said == []
    assert asked == [page_file.as_uri()]
    assert page.title() == "<b>&title"
    assert page.locator("script, img, iframe, link, object, h1 b").count() == 0
    assert page.locator("figure svg").count() == 6
    # Names are text, in plots, too.
    text = page.locator("main").text_content()
    assert "<script>alert(1)<!--" in text
    assert "\\x1b[31mred\\u202e" in text
    assert "$\\frac{1}{0}$" in text
    sticks_out = page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert sticks_out <= 0
    small = page.evaluate(
        "() => [...document.querySelectorAll('figure')].filter("
        "one => one.getBoundingClientRect().width < 280).length"
    )
    assert small == 0
    colors = page.evaluate(
        "() => [getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('figure svg text')).fill]"
    )
    is_dark = [sum(map(int, _numbers(color))) < 384 for color in colors]
    assert is_dark == ([True, False] if scheme == "dark" else [False, True])
    context.close()


@pytest.mark.parametrize("width", [500, 1280])
def test_no_column_is_out_of_sight(browser: Any, page_file: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(page_file.as_uri())
    page.evaluate("() => document.querySelectorAll('details').forEach(one => one.open = true)")
    clipped = page.evaluate(
        "() => [...document.querySelectorAll('.scroll')].filter("
        "one => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert clipped == 0
    page.close()


def test_the_golden_logs_print_on_few_pages(browser: Any, tmp_path: Path) -> None:
    ks.build_report(GOLDEN / "kafka-4.4.0" / "data").write(tmp_path / "page.html")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    printed = page.pdf(format="A4")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 5
    page.close()


def _numbers(color: str) -> list[str]:
    return color[color.index("(") + 1 : -1].split(",")[:3]
