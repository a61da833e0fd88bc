"""Hooks of mkdocs: public names in the API reference are links to their descriptions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_DOCS = Path(__file__).parent
_COLUMNS = set(re.findall(r"^\| `(\w+)` \|", (_DOCS / "columns.md").read_text(), re.M))
_CODE = re.compile(r"<code>(\w+)</code>")
_IDENTIFIERS = {
    name: f"kafkascan.{room}.{name}"
    for page in _DOCS.glob("api/*.md")
    for room, name in re.findall(r"^::: kafkascan\.(\w+)\.(\w+)$", page.read_text(), re.M)
    if room != "spark" and name not in {*_COLUMNS, "column"}  # words that mean something else, too
}


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Link the names of a page of the API reference."""
    return _CODE.sub(_linked, html) if page.file.src_uri.startswith("api/") else html


def _linked(match: re.Match[str]) -> str:
    identifier = _IDENTIFIERS.get(match[1])
    return f'<autoref identifier="{identifier}">{match[0]}</autoref>' if identifier else match[0]
