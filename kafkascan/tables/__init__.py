"""What every answer is: a table with a schema, and an account of what was not read."""

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.tables.schema import (
        Field as Field,
        Schema as Schema,
        Shown as Shown,
    )
    from kafkascan.tables.table import (
        AnyTable as AnyTable,
        Column as Column,
        IncompleteTableWarning as IncompleteTableWarning,
        Problem as Problem,
        Problems as Problems,
        Table as Table,
    )
    from kafkascan.tables.table_set import (
        TableSet as TableSet,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "schema": ["Field", "Schema", "Shown"],
            "table": [
                "AnyTable",
                "IncompleteTableWarning",
                "Problem",
                "Problems",
                "Table",
                "Column",
            ],
            "table_set": ["TableSet"],
        },
    )
