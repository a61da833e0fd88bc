"""Results that hold several tables, and how a notebook shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kafkascan.format.errors import UnknownColumnError
from kafkascan.format.findings import Severity
from kafkascan.format.suggestions import suggestion
from kafkascan.tables.schema import Schema
from kafkascan.tables.table import HEAD_ROWS, Problems, Table, html_table, problem_lines


@dataclass(frozen=True, eq=False, repr=False)
class TableSet:
    """
    A result that holds several tables, each of which carries the problems of the result.

    A table is an attribute and an item: ``result.offsets`` is ``result["offsets"]``.

    Attributes
    ----------
    schemas : dict of str to Schema
        The columns of the tables, by name of the table.
    problems : Problems
        What was not read, is damaged or is a guess; empty if the answer is complete.
    """

    schemas: ClassVar[dict[str, Schema]]

    if TYPE_CHECKING:  # a property at run time would be the default of subclasses' fields

        @property
        def problems(self) -> Problems:
            """What was not read, is damaged or is a guess."""

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by name."""
        return {name: getattr(self, name) for name in self.schemas}

    @property
    def is_complete(self) -> bool:
        """Whether no rows are missing."""
        return not any(one.rows_missing for one in self.problems)

    @property
    def is_exact(self) -> bool:
        """Whether there is no problem but notes."""
        return all(one.severity is Severity.NOTE and not one.rows_missing for one in self.problems)

    def __getitem__(self, name: str) -> Table:
        if name not in self.schemas:
            hint = suggestion(name, list(self.schemas))
            raise UnknownColumnError(f"{type(self).__name__} has no table {name!r}{hint}")
        return self.tables[name]

    def _counts(self) -> list[str]:
        """Return what `repr` counts."""
        found = [f"{len(table):,} {name}" for name, table in self.tables.items() if len(table)]
        return found or ["no rows"]

    def __repr__(self) -> str:
        exact = "exact" if self.is_exact else "not exact"
        summary = f"<{type(self).__name__}: {', '.join(self._counts())}, {exact}>"
        return "\n".join([summary, *problem_lines(self.problems)])

    def _repr_html_(self) -> str:
        """Return the summary, and the first rows of each table that has any, for a notebook."""
        import html

        parts = [
            f"<h4>{html.escape(name)}</h4>{html_table(table, HEAD_ROWS)}"
            for name, table in self.tables.items()
            if len(table)
        ]
        return f"<div><pre>{html.escape(repr(self))}</pre>{''.join(parts)}</div>"
