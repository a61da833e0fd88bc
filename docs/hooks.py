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
    path.rpartition(".")[2]: path
    for page in _DOCS.glob("api/*.md")
    for path in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
    # Not words that mean something else, too.
    if page.stem != "spark" and path.rpartition(".")[2] not in {*_COLUMNS, "column"}
}


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Link the names of a page of the API reference."""
    return _CODE.sub(_linked, html) if page.file.src_uri.startswith("api/") else html


def _linked(match: re.Match[str]) -> str:
    identifier = _IDENTIFIERS.get(match[1])
    return f'<autoref identifier="{identifier}">{match[0]}</autoref>' if identifier else match[0]
