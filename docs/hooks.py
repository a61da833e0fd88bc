"""Hooks of mkdocs: names in the API reference are links, and types read as in the docstrings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_DOCS = Path(__file__).parent
_COLUMNS = set(re.findall(r"^\| `(\w+)` \|", (_DOCS / "columns.md").read_text(), re.M))
# "path, bytes-like or Source" is read as a tuple and a difference.
_TUPLE = re.compile(r"\(<code>\((.+?)\)</code>")
_CODE = re.compile(r"<code>(\w+)</code>")
_IDENTIFIERS = {
    path.rpartition(".")[2]: path
    for page in _DOCS.glob("api/*.md")
    for path in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
    # Not words that mean something else, too.
    if page.stem != "spark" and path.rpartition(".")[2] not in {*_COLUMNS, "column"}
}


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Link the names of a page of the API reference, and show its types as they are written."""
    if not page.file.src_uri.startswith("api/"):
        return html
    types = _TUPLE.sub(r"(<code>\1</code>", html).replace(" - like", "-like")
    return _CODE.sub(_linked, types)


def _linked(match: re.Match[str]) -> str:
    identifier = _IDENTIFIERS.get(match[1])
    return f'<autoref identifier="{identifier}">{match[0]}</autoref>' if identifier else match[0]
