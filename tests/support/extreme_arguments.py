"""Extreme numbers as arguments of every public function that takes a number or a time."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np

import kafkascan as ks
from tests.support.extremes import EXTREMES
from tests.support.paths import GOLDEN

ARGUMENTS = (*EXTREMES, -(2**63) - 1, 2**63, 2**64 - 1, 10**20)
_TIMES = (
    "0001-01-01T00:00+23:59", "9999-12-31T23:59:59.999999-23:59", np.datetime64(2**62, "s"),
    np.datetime64(2**62, "Y"), np.datetime64(-(2**63) + 1, "ns"), np.datetime64("NaT"),
)  # fmt: skip
_OF_NUMBERS, _OF_TIMES = {"int", "ArrayLike"}, {"TimeLike", "AsOf"}
_STATE = GOLDEN / "kafka-4.4.0" / "data"
_TIERED = GOLDEN / "kafka-4.4.0-tiered" / "data"
_SCHEMAS = GOLDEN / "kafka-4.4.0-schemas" / "data"

Step = tuple[str, Callable[[], object]]


@dataclass(frozen=True)
class Call:
    """A function with arguments that it accepts; numbers replace them one by one."""

    function: Callable[..., object]
    positional: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)
    described_by: Callable[..., object] | None = None
    """The function that has the parameters, if `function` passes them on."""

    def steps(self, name: str) -> Iterator[Step]:
        parameters = numeric_parameters(self.described_by or self.function)
        places = list(inspect.signature(self.function).parameters)
        for parameter, is_time in parameters.items():
            for value in (*ARGUMENTS, *(_TIMES if is_time else ())):
                positional, named = list(self.positional), dict(self.named)
                if parameter in places[: len(positional)]:
                    positional[places.index(parameter)] = value
                else:
                    named[parameter] = value
                yield f"{name}({parameter}={value!r})", partial(self._run, positional, named)

    def _run(self, positional: list[object], named: dict[str, object]) -> None:
        made = [one() if callable(one) else one for one in positional]
        _read_out(self.function(*made, **named))


def numeric_parameters(function: Callable[..., object]) -> dict[str, bool]:
    """Return the parameters of a function that take numbers or times, and whether it is a time."""
    found = {}
    for name, one in inspect.signature(function).parameters.items():
        kinds = {kind.strip() for kind in str(one.annotation).split("|")}
        if kinds & (_OF_NUMBERS | _OF_TIMES):
            found[name] = bool(kinds & _OF_TIMES)
    return found


def public_functions() -> dict[str, Callable[..., object]]:
    """Return the public functions that take a number or a time, by their names."""
    rooms = [ks, *(
        importlib.import_module(f"kafkascan.{one.name}")
        for one in pkgutil.iter_modules(ks.__path__)
        if one.ispkg and one.name not in ("_core", "cli", "spark")
    )]  # fmt: skip
    found = {name: getattr(room, name) for room in rooms for name in getattr(room, "__all__", ())}
    return {
        name: one
        for name, one in found.items()
        if inspect.isfunction(one) and numeric_parameters(one)
    }


def calls(partition: Path, out: Path) -> dict[str, Call]:
    """Return a call of each public function, and of classes that callers make."""
    log = partition / f"{0:020}.log"
    data, batches = log.read_bytes(), ks.scan_batches(log).batches
    numbers = count()

    def target() -> Path:
        folder = out / f"{next(numbers)}"
        folder.mkdir()
        return folder / "x-0"

    def copy() -> Path:
        return Path(shutil.copytree(partition, target()))

    def written(**options: Any) -> object:
        folder = target()
        folder.mkdir()
        with ks.SegmentWriter(folder, **options) as writer:
            writer.append(data)
        return ks.read_records(folder)

    def followed(**options: Any) -> object:
        return next(iter(ks.logs.LogFollower(partition, **options).poll()), None)

    gzip, topics = {"compression_type": "gzip"}, ks.internal_topics
    keep = ks.rewrite.without_offsets(3, 9)
    entries = ks.read_index(log.with_suffix(".index"))
    tier = ks.tiered.open_tiered(out.parent / "tier")
    return {
        "LogFollower": Call(followed, described_by=ks.logs.LogFollower),
        "SegmentWriter": Call(written, described_by=ks.SegmentWriter),
        "Source": Call(ks.Source, (log,)),
        "advise": Call(ks.advise, (partition,), {"choices": ("gzip:1",)}),
        "audit": Call(ks.audit, (partition,)),
        "build_batches": Call(_round_trip, described_by=ks.write.BatchFields),
        "build_offset_index": Call(ks.build_offset_index, (batches,), {"base_offset": 0}),
        "build_report": Call(ks.build_report, (partition,)),
        "build_time_index": Call(ks.build_time_index, (batches,), {"base_offset": 0}),
        "check_batches": Call(ks.check_batches, (batches,)),
        "check_index": Call(ks.check_index, (entries, batches)),
        "compare_remote_segments": Call(topics.compare_remote_segments, (_TIERED, tier)),
        "convert_log": Call(ks.convert_log, (partition, target), gzip),
        "convert_records": Call(ks.convert_records, (log,), gzip),
        "count_records": Call(ks.count_records, (partition,), {"deep": True}),
        "crc32c": Call(ks.crc32c, (b"abc", 0)),
        "diff_logs": Call(ks.diff_logs, (partition, partition)),
        "filter_records": Call(ks.filter_records, (log,), {"keep": keep}),
        "iter_batches": Call(ks.iter_batches, (log,)),
        "iter_built_batches": Call(ks.iter_built_batches, (), {"key": ["k", "l"]}),
        "iter_records": Call(ks.iter_records, (partition,)),
        "lookup_offset": Call(ks.lookup_offset, (partition, 5), {"trust_index": True}),
        "lookup_timestamp": Call(ks.lookup_timestamp, (partition, 5), {"trust_index": True}),
        "open_registry": Call(ks.schemas.open_registry, (_SCHEMAS,)),
        "open_tiered": Call(ks.tiered.open_tiered, (out.parent / "tier",)),
        "open_view": Call(ks.logs.open_view, (partition,)),
        "read_fingerprints": Call(ks.analysis.read_fingerprints, (partition,)),
        "read_groups": Call(ks.read_groups, (_STATE,)),
        "read_metadata": Call(ks.read_metadata, (_STATE,)),
        "read_producers": Call(ks.read_producers, (partition,), {"sample": 2}),
        "read_records": Call(ks.read_records, (partition,)),
        "read_remote_segments": Call(topics.read_remote_segments, (_TIERED,)),
        "read_schema_usage": Call(
            ks.analysis.read_schema_usage, (partition, ks.schemas.open_registry(_SCHEMAS))
        ),
        "read_share_state": Call(ks.read_share_state, (_STATE,)),
        "read_transaction_state": Call(ks.read_transaction_state, (_STATE,)),
        "read_transactions": Call(ks.read_transactions, (partition,)),
        "recover": Call(ks.recover, (copy,), {"write": True, "truncate": True}),
        "restamp": Call(ks.restamp, (log,)),
        "restamp_in_place": Call(
            ks.rewrite.restamp_in_place, (lambda: bytearray(data), batches)
        ),
        "restamp_log": Call(ks.restamp_log, (partition, target)),
        "restore": Call(ks.recovery.restore, (out.parent / "tier", target)),
        "salvage": Call(ks.salvage, (partition, target)),
        "scan_batches": Call(ks.scan_batches, (log,)),
        "scan_log_dir": Call(ks.scan_log_dir, (partition,)),
        "scan_records": Call(ks.polars.scan_records, (partition,)),
        "scrub_log": Call(ks.rewrite.scrub_log, (partition, target), {"keep": keep}),
        "select_offsets": Call(ks.batches.select_offsets, (batches, 0, 5)),
        "select_times": Call(ks.batches.select_times, (batches, 0, 5)),
        "validate_batches": Call(ks.validate_batches, (log,)),
        "verify_crcs": Call(ks.verify_crcs, (log, batches)),
        "without_offsets": Call(ks.rewrite.without_offsets, (3, 9)),
    }  # fmt: skip


def argument_steps(partition: Path, out: Path) -> Iterator[Step]:
    """Yield the functions with each argument, and columns and builders with each two numbers."""
    tried = calls(partition, out)
    assert public_functions().keys() <= tried.keys(), public_functions().keys() - tried.keys()
    for name, call in tried.items():
        yield from call.steps(name)
    for magic, one, other in product((0, 1, 2), ARGUMENTS, ARGUMENTS):
        columns = {"offset": [one, other], "timestamp": [other, one], "magic": magic}
        yield f"build_batches({columns})", partial(_round_trip, **columns)
        yield f"BatchBuilder({columns})", partial(_built, magic, one, other)


def _round_trip(**options: Any) -> object:
    """Write records with `build_batches`; what is written must be what was asked for."""
    columns = {"offset": [7, 8], "timestamp": [5, 6], "key": ["k", "l"], **options}
    data = ks.build_batches(**columns)
    _require_written(data, columns["offset"], columns["timestamp"], options)
    return ks.validate_batches(data)


def _built(magic: int, offset: int, time: int) -> object:
    builder = ks.BatchBuilder(magic=magic, base_offset=offset)
    builder.append(time, b"k", b"v")
    builder.append(offset, b"l", b"v", offset=time)
    data = builder.build()
    _require_written(data, [offset, time], [time, offset], {"magic": magic})
    return ks.validate_batches(data)


def _require_written(
    data: bytes, offsets: list[int], times: list[int], fields: Mapping[str, Any]
) -> None:
    batches, records = ks.scan_batches(data).batches, ks.read_records(data)
    found = records["offset"].tolist()
    assert found == offsets, (found, offsets)
    if (
        fields.get("magic") != 0
        and "log_append_time" not in fields
        and "timestamp_type" not in fields
    ):
        assert records["timestamp"].tolist() == times, (records["timestamp"], times)
    for name in set(fields) & set(batches.dtype.names or ()) - {"magic"}:
        assert batches[name][0] == fields[name], (name, batches[name][0])


def _read_out(result: Any) -> None:
    """Convert a result; iterators and lazy frames do their work here."""
    if hasattr(result, "collect"):
        result = result.collect()
    for one in result if hasattr(result, "__next__") else [result]:
        if hasattr(one, "to_arrow") and hasattr(one, "problems"):
            one.to_arrow()
        repr(one)
