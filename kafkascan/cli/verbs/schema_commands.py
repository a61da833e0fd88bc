"""Commands about schema registries: list, usage, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kafkascan as ks
from kafkascan.analysis.analysis_schemas import USAGE_SCHEMA
from kafkascan.cli.shared_options import (
    AS_OF,
    PATH,
    DiskPath,
    InputPath,
    option,
    usage_errors,
    with_logs,
    with_run,
)
from kafkascan.schemas.registry_schemas import (
    EXPORT_SCHEMA,
    REGISTRY_SCHEMA,
    SCHEMAS_TOPIC,
)

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport, Run
    from kafkascan.logs.log_finding import PartitionFilter
    from kafkascan.tables.table import AnyTable

_TOPIC = option("--schemas-topic NAME", "schemas_topic", default=SCHEMAS_TOPIC,
                help="Name of the registry's topic in a data directory.")  # fmt: skip


class _ListsByDefault(click.Group):
    """A group whose first argument may be the one of ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``list`` before anything that is neither a command nor about the group."""
        of_group = {*self.commands, *ctx.help_option_names}
        if args and args[0] not in of_group:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListsByDefault)
def schemas() -> None:
    """List and export the schemas of a schema registry's topic.

    `schemas PATH` is `schemas list PATH`. PATH is a broker's data directory, a partition directory
    of the topic or a tar archive of them; a folder of schema files, as `schemas export` writes it;
    a .json file with a registry's answer to GET /schemas; or the http(s) URL of a registry.
    """


@schemas.command("list")
@PATH
@with_run(REGISTRY_SCHEMA, to_file=True)
@option("--show SCHEMA", "shown_schema",
        help="Print the text of one schema: SUBJECT, SUBJECT:VERSION or an id.")  # fmt: skip
@AS_OF
@_TOPIC
def list_(run: Run, path: Path, shown_schema: str | None, **options: Any) -> None:
    """List subjects, versions, ids, types and compatibility; or show a schema.

    Deleted versions are listed, too, as long as the registry resolves their ids. Exit code 1: the
    answer is not complete or not exact, because of damage, compaction, deleted records or records
    that are not understood.
    """

    def work(path: Path, report: FindingReport) -> AnyTable | None:
        registry = _opened(path, report, **options)
        if shown_schema is None:
            return registry.to_table()
        text = _find(registry, shown_schema).schema.text
        run.output.write_text(text if text.endswith("\n") else f"{text}\n")
        return None

    for table in run.each([path], work):
        if table is not None:
            run.output.write_tables(REGISTRY_SCHEMA, [table])


def _opened(
    path: Path, report: FindingReport, *, schemas_topic: str, as_of: Any = None
) -> ks.schemas.Registry:
    with usage_errors():
        registry = ks.schemas.open_registry(path, as_of=as_of, topic=schemas_topic)
    report.add_problems(registry.problems)
    return registry


def _find(registry: ks.schemas.Registry, text: str) -> ks.schemas.SubjectVersion:
    """Return a version by its subject, its number, or its id."""
    known = registry.versions(text)
    subject, _, number = text.rpartition(":")
    if known:
        return next((one for one in reversed(known) if not one.is_deleted), known[-1])
    if number.isascii() and number.isdecimal():
        one = registry.version(subject, int(number)) if subject else None
        schema = registry.schema(int(number)) if not subject else None
        found = one or next(iter(registry.users_of(schema) if schema else ()), None)
        if found is not None:
            return found
    raise ks.schemas.RegistryError(registry.place, f"there is no schema {text!r}", "NO_SCHEMA")


@schemas.command()
@with_logs
@with_run(USAGE_SCHEMA, to_file=True)
@option("--registry PATH", type=InputPath(),
        help="Registry with the schemas, as for `schemas list`; by default the topic in the same"
        " directory.")  # fmt: skip
@option("--keys", help="Read the prefixes of keys instead of values.")
@option("--context NAME", default="",
        help="Context of the ids in the records, such as .staging; by default the default"
        " one.")  # fmt: skip
@_TOPIC
def usage(
    run: Run,
    paths: list[Path],
    wanted: PartitionFilter,
    registry: Path | None,
    keys: bool,
    context: str,
    schemas_topic: str,
) -> None:
    """Count records by the schema they were written with, and list their producers.

    Prints a row per partition and schema; only prefixes and record headers are read. Records
    without a known schema have rows with the reason: null, no_prefix, unknown_id, ambiguous or
    bad_header. Exit code 1: the answer is not complete, because of damage.
    """

    def work(path: Path, report: FindingReport) -> AnyTable:
        opened = _opened(registry or path, report, schemas_topic=schemas_topic)
        part: ks.schemas.Part = "key" if keys else "value"
        logs = wanted.select(path)
        table = ks.analysis.read_schema_usage(logs, opened, part=part, context=context)
        report.add_problems(table.problems)
        return table

    run.output.write_tables(USAGE_SCHEMA, run.each(paths, work))


@schemas.command()
@PATH
@click.argument("folder", type=DiskPath())
@with_run(EXPORT_SCHEMA, to_file=True)
@AS_OF
@_TOPIC
def export(run: Run, path: Path, folder: Path, **options: Any) -> None:
    """Write schema files and the requests that restore a registry to FOLDER.

    FOLDER must not exist. It gets a file for each version (orders-value-v3.id17.avsc),
    registry.json, which the other commands read, and import.jsonl: a line for each request that
    restores the content, with the ids, in an empty registry.

    Exit code 1: as for `schemas list`.
    """

    def work(path: Path, report: FindingReport) -> AnyTable:
        return ks.schemas.export_schemas(_opened(path, report, **options), folder)

    run.output.write_tables(EXPORT_SCHEMA, run.each([path], work))
