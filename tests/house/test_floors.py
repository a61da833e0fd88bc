"""Imports go strictly down: a module imports from floors below its own, never sideways."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import kafkascan

PACKAGE = Path(kafkascan.__file__).parent

FLOORS = {
    "_core.layout": 0.0,
    "_core.guard": 0.1,
    "_core.memory": 0.2,
    "_core.batches": 0.2,
    "_core.checksums": 0.2,
    "_core.buffers": 0.1,
    "_core.producer_ids": 0.1,
    "_core.producer_orders": 0.15,
    "_core.row_checks": 0.1,
    "_core.records": 0.2,
    "_core.markers": 0.2,
    "_core.restamping": 0.3,
    "_core.views": 0.1,
    "_core.unpacking": 0.2,
    "_core.packing": 0.2,
    "_core.indexes": 0.2,
    "_core.index_screening": 0.2,
    "_core.fingerprints": 0.2,
    "_core.items": 0.2,
    "_core.producers": 0.2,
    "_core.encoding": 0.3,
    "_core.census": 0.2,
    "_core.screening": 0.2,
    "_core.search": 0.3,
    "_core": 0.9,
    "errors": 1,
    "layout": 1,
    "names": 1,
    "findings": 1,
    "staged_files": 2.1,
    "sources": 2,
    "starts": 2,
    "batch_columns": 2,
    "checksums": 2,
    "codecs": 2,
    "columns": 2.5,
    "arrow": 2.6,
    "summary": 2.5,
    "selection": 2.5,
    "walks": 2.5,
    "parallel": 2.6,
    "checks": 2.6,
    "offset_order": 2.6,
    "true_batches": 2.7,
    "resync": 2.8,
    "batches": 3,
    "copies": 2.6,
    "payloads": 3,
    "record_table": 3,
    "restamping": 3.5,
    "records": 5.3,
    "compression": 2,
    "item_columns": 2.5,
    "arrow_items": 2.7,
    "record_columns": 3.5,
    "encoding": 3.6,
    "building": 3.7,
    "batch_builder": 4.6,
    "decoding": 4,
    "committed": 5.2,
    "folders": 2.1,
    "archives": 2.2,
    "ordered": 1,
    "screening": 2.5,
    "log_chunks": 5.2,
    "log_table": 5.25,
    "logs": 5.3,
    "transaction_follower": 5.4,
    "transaction_spans": 5.45,
    "compression_sample": 5.4,
    "producer_census": 5.45,
    "counts": 5.5,
    "metadata_log": 5.4,
    "audit_findings": 2.7,
    "audit_batches": 2.8,
    "audit_looks": 5.4,
    "audit_files": 5.5,
    "audit_log": 5.6,
    "audit": 5.7,
    "indexes": 4,
    "control": 4.5,
    "index_checks": 4.5,
    "checkpoints": 2,
    "epochs": 2.5,
    "transactions": 4.6,
    "record_validation": 4.6,
    "rewriting": 4.6,
    "batch_fates": 4.7,
    "conversion_plan": 4.7,
    "conversion": 4.8,
    "filtering": 4.8,
    "validation": 4.7,
    "producers": 4.7,
    "producer_trails": 4.75,
    "segment_recovery": 4.8,
    "schemas": 0.9,
    "schemas.decoder": 1,
    "schemas.encoder": 1.2,
    "schemas.control": 1.5,
    "schemas.metadata": 1.5,
    "segment_writer": 4.8,
    "segment": 5,
    "log_dir": 5.1,
    "lookups": 6.5,
    "staged_segments": 5.45,
    "offset_search": 5.4,
    "segment_splitting": 5.45,
    "producer_history": 5.5,
    "log_loading": 6.5,
    "data_dir_lock": 3,
    "file_changes": 2.2,
    "recovery": 7,
    "rewrite_reports": 4.6,
    "log_rewriting": 7.1,
    "log_rewrites": 7.2,
    "mending": 4,
    "salvaged_segments": 4.5,
    "salvage": 7.2,
    "fingerprints": 7,
    "alignment": 7.1,
    "log_diff": 7.2,
    "advice": 7,
    "report.facts": 7.5,
    "report.plots": 7.6,
    "report": 7.7,
    "spark.schemas": 7,
    "spark.where": 7.1,
    "spark.option_values": 7.1,
    "spark.options": 7.2,
    "spark.stores": 7.0,
    "spark.files": 7.3,
    "spark.plan": 7.4,
    "spark.prefetch": 7.0,
    "spark.ranges": 7.0,
    "spark.damage": 7.4,
    "spark.constants": 7.0,
    "spark.index_state": 7.0,
    "spark.committed": 7.35,
    "spark.times": 7.5,
    "spark.batch_rows": 7.5,
    "spark.record_rows": 7.6,
    "spark.segment_rows": 7.6,
    "spark.scan": 7.7,
    "spark.conf": 7.0,
    "spark.stable_ends": 7.4,
    "spark.log_ends": 7.7,
    "spark.outputs": 7.7,
    "spark.exports": 7.8,
    "spark.index_work": 7.8,
    "spark.header_work": 7.8,
    "spark.worker": 7.9,
    "spark.frames": 8.0,
    "spark.jobs": 8.1,
    "spark.stream": 8.0,
    "spark.source": 8.1,
    "spark": 8.4,
    "": 8.5,  # the package's public face: the command line stands on it like any user
    "cli.inputs": 9,
    "files": 1,
    "cli.decoding": 9,
    "cli.output": 9.05,
    "cli.parquet": 9.05,
    "cli.options": 9.1,
    "cli.record_commands": 9.15,
    "cli.index_commands": 9.15,
    "cli.recovery_commands": 9.15,
    "cli.log_commands": 9.15,
    "cli.rewrite_commands": 9.15,
    "cli.session": 9.1,
    "cli.spark_commands": 9.15,
    "cli.salvage_commands": 9.17,
    "cli.report_commands": 9.17,
    "cli.compare_commands": 9.17,
    "cli.commands": 9.2,
    "cli": 9.3,
    "__main__": 10,
    "spark.__main__": 10,
}


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    # A .pxd is a module of its own where there is nothing else of its name.
    found = [*PACKAGE.rglob("*.pxd"), *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.py")]
    return {module_name(path): path for path in found}


def imported_by(path: Path) -> set[str]:
    """Modules of the package that a file imports, wherever in the file it does."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        names = set(re.findall(r"^\s*(?:from|cimport|import) (kafkascan[\w.]*)", text, re.M))
    else:
        names = {name for node in ast.walk(ast.parse(text)) for name in imported_names(node)}
    return {
        name.removeprefix("kafkascan").removeprefix(".")
        for name in names
        if name == "kafkascan" or name.startswith("kafkascan.")
    }


def imported_names(node: ast.AST) -> set[str]:
    """Modules that a statement imports; `from package import module` imports the module."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative import"
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        ours = {f"kafkascan.{name}" for name in modules()}
        return (inner & ours) | ({str(node.module)} if inner - ours else set())
    return set()


def test_every_module_has_a_floor() -> None:
    assert set(modules()) == set(FLOORS)
    assert len(FLOORS) >= 20, "a check over nothing is no check"


def test_imports_go_down() -> None:
    checked = 0
    wrong = []
    for name, path in modules().items():
        for other in imported_by(path):
            checked += 1
            if FLOORS[other] >= FLOORS[name]:
                wrong.append(
                    f"{name} (floor {FLOORS[name]}) imports {other} (floor {FLOORS[other]})"
                )
    assert wrong == []
    assert checked >= 40, "a check over nothing is no check"
