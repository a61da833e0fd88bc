"""Hooks of mkdocs: names in the API reference are links, and types read as in the docstrings.

It is also an extension of griffe, which reads the docstrings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import griffe

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
    for path in re.findall(r"^<!-- ::: (\S+)", page.read_text(), re.M)
    # Not words that mean something else, too.
    if page.stem != "spark" and path.rpartition(".")[2] not in {*_COLUMNS, "column"}
}


# What a reader of the page's source does not see.
_DIRECTIVE = re.compile(r"<!-- (:::.*?) -->", re.S)


class DocstringSections(griffe.Extension):
    """Gives each parameter of a group its own type, and "As `function`" in "Raises" a sentence."""

    def on_package(self, *, pkg: griffe.Module, **_: object) -> None:
        """Correct the sections of all docstrings, which are parsed once."""
        _correct(pkg)


def _correct(parent: griffe.Object) -> None:
    for one in parent.members.values():
        if isinstance(one, griffe.Alias) or one.name.startswith("_"):
            continue
        if one.docstring is not None and isinstance(one, (griffe.Class, griffe.Function)):
            _correct_types(one, one.docstring.parsed)
            _correct_raises(one.docstring.parsed)
        _correct(one)


def _correct_types(one: griffe.Class | griffe.Function, sections: list[object]) -> None:
    """Replace type and default of the first one of a group, which griffe gives to all of them."""
    own = {parameter.name: parameter for parameter in one.parameters}
    for section in sections:
        if isinstance(section, griffe.DocstringSectionParameters):
            for parameter in section.value:
                is_of_signature = any(
                    parameter.annotation is other.annotation for other in own.values()
                )
                if is_of_signature and parameter.name in own:
                    parameter.annotation = own[parameter.name].annotation
                    parameter.value = own[parameter.name].default


def _correct_raises(sections: list[object]) -> None:
    """Turn the lines from "As `function`" on, which griffe takes for exceptions, into a text."""
    for number, section in enumerate(sections):
        if isinstance(section, griffe.DocstringSectionRaises):
            lines = [f"{one.annotation} {one.description}".strip() for one in section.value]
            count = next((at for at, line in enumerate(lines) if line.startswith("As `")), None)
            if count is not None:
                text = " ".join(lines[count:])
                title = "Raises: as" if count == 0 else "Also as"
                sections.insert(number + 1, griffe.DocstringSectionText(title + text[2:]))
                del section.value[count:]
                if count == 0:
                    del sections[number]
            return


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Uncomment the directives of the API reference."""
    return _DIRECTIVE.sub(r"\1", markdown) if page.file.src_uri.startswith("api/") else markdown


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Link the names of a page of the API reference, and show its types as they are written."""
    if not page.file.src_uri.startswith("api/"):
        return html
    types = _TUPLE.sub(r"(<code>\1</code>", html).replace(" - like", "-like")
    return _CODE.sub(_linked, types)


def _linked(match: re.Match[str]) -> str:
    identifier = _IDENTIFIERS.get(match[1])
    return f'<autoref identifier="{identifier}">{match[0]}</autoref>' if identifier else match[0]
