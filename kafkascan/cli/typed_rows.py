"""Keys and values that the command `records` decodes by the schemas of a registry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkascan.cli.run import FindingReport, Run
from kafkascan.cli.shared_options import TYPED
from kafkascan.format.errors import KafkaScanError, NoLogsError
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.logs.queries.row_windows import FoundRows
from kafkascan.records.record_table import RecordTable
from kafkascan.records.typed_items import ColumnDecoder, ColumnDecoders, ItemDecoding, ItemPlace
from kafkascan.tables.table import Problems

if TYPE_CHECKING:  # most runs need no schema
    from kafkascan.schemas.registry import Registry

INFERRED = "inferred"
"""The option's value for the types of a sample."""


def registry_decoders(
    run: Run,
    folder: Path | None,
    formats: Mapping[str, str],
    place: str | None,
    value_schema: str | None,
    value_message: str,
) -> dict[str, ColumnDecoders]:
    """
    Return what decodes keys and values by a registry; nothing if they are not to be.

    Without a place, the registry is that of the folder, the data dir with the logs, if there are
    any.
    """
    typed = [name for name, kind in formats.items() if kind == TYPED]
    if not typed and place is not None:
        raise click.UsageError("--registry needs --value-as auto or --key-as auto")
    if "value" not in typed and (value_schema is not None or value_message):
        raise click.UsageError("--value-schema and --value-message need --value-as auto")
    if value_message and value_schema is None:
        raise click.UsageError("--value-message needs --value-schema")
    if not typed or folder is None:
        return {}
    from kafkascan.schemas.registry import SchemaError

    registry = _open_registry_of(run, folder, place)
    found: dict[str, ColumnDecoders] = dict.fromkeys(typed, registry)
    if value_schema is not None:
        try:
            found["value"] = registry.reader_named(value_schema, message=value_message)
        except SchemaError as error:
            raise click.UsageError(str(error)) from None
    return found


def json_decoders(formats: Mapping[str, str], place: str | None) -> dict[str, ColumnDecoders]:
    """Return what decodes keys and values that are JSON into columns."""
    if place is None:
        return {}
    found = [name for name, kind in formats.items() if kind == "json"]
    if not found:
        raise click.UsageError("--json-schema needs --value-as json or --key-as json")
    from kafkascan.schemas.plain_json import json_values

    try:
        schema = None if place == INFERRED else Path(place).read_text("utf-8")
        return dict.fromkeys(found, json_values(schema))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--json-schema {place}: {error}") from None


def _open_registry_of(run: Run, folder: Path, place: str | None) -> Registry:
    """
    Return the registry at a place; without one, that of the data dir with the logs.

    Raises
    ------
    click.UsageError
        If the data dir has none.
    RegistryError
        If the place cannot be read.
    """
    from kafkascan.schemas.places import RegistryError, open_registry

    # The folders of a tar archive are only names.
    archive = next((one for one in (folder, *folder.parents) if one.is_file()), folder)
    try:
        registry = open_registry(archive if place is None else place)
    except NoLogsError:
        if place is not None:
            raise
        raise click.UsageError(
            f"{folder} has no topic _schemas: name the schemas with --registry PLACE"
        ) from None
    except OSError as error:
        if isinstance(error, KafkaScanError):
            raise
        reason = f"cannot read the schema registry: {error.strerror or error}"
        raise RegistryError(str(place or folder), reason) from None
    report = FindingReport()
    report.add_problems(registry.problems)
    run.print_report(report)
    return registry


class TypedRows:
    """
    Decodes keys and values of found records.

    Parameters
    ----------
    run : Run
        Gets what could not be decoded.
    decoders : mapping of str to ColumnDecoders
        By the name of the column.
    """

    def __init__(self, run: Run, decoders: dict[str, ColumnDecoders]) -> None:
        self._run, self._decoders = run, decoders
        self._decodings: dict[Path, ItemDecoding] = {}

    def of(self, found: FoundRows[RecordTable]) -> FoundRows[Any]:
        """Yield the records with typed columns."""
        for one, table in found:
            place = one.partition
            if (place.topic or "").startswith("_"):  # Kafka's own, and the registry's
                yield one, table
                continue
            decoded = self._decoding_of(place).decoded(table)
            report = FindingReport()
            report.add_problems(Problems(decoded.problems))
            self._run.print_report(report)
            yield one, decoded.records

    def _decoding_of(self, one: PartitionDir) -> ItemDecoding:
        """Return what decodes a partition, whose problems name its path."""
        if one.path not in self._decodings:
            decoders: dict[str, ColumnDecoder] = {
                name: it.decoder(ItemPlace(name, str(one.path), one.topic, one.partition))
                for name, it in self._decoders.items()
            }
            self._decodings[one.path] = ItemDecoding(decoders)
        return self._decodings[one.path]
