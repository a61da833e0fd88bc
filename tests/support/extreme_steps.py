"""Every command and every function about files, on data directories with extreme numbers."""

from __future__ import annotations

import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

import kafkascan as ks
from kafkascan.cli.exit_codes import EXIT_CLEAN, EXIT_UNREADABLE
from kafkascan.format.errors import KafkaScanError
from kafkascan.format.times import THIS_CENTURY, TimeLike
from kafkascan.spark.planning.file_listing import TieredStorageWarning
from kafkascan.tables import IncompleteTableWarning, TableSet
from tests.spark.logs import rows
from tests.support.command_line import run
from tests.support.dump_decoders import DECODER_OPTIONS
from tests.support.extreme_arguments import argument_steps
from tests.support.extreme_messages import message_cases
from tests.support.extreme_places import registry_cases, tier_cases, typed_cases
from tests.support.extremes import (
    EXTREMES,
    Case,
    covered_pairs,
    data_dir_files,
    legacy,
    named,
    of_data_dirs,
    pairs,
    partition_files,
    sampled,
    shifted,
    singles,
)
from tests.support.tiers import put_local
from tests.support.waiting import IS_SANITIZED

SECONDS = 100 if IS_SANITIZED else 10
"""CPU time of a step, after which it hangs."""

_LARGEST_HEAP = 3 << 30
_GROUP = 12
"""Partitions of a data directory."""

Step = tuple[str, Callable[[], object]]

_ON_LOGS = [line.split() for line in """
info --by codec,magic DATA
batches --format jsonl --verify DATA
batches --tail 3 --wide DATA
batches --from-offset 9223372036854775807 DATA
records --control include --format jsonl DATA
records --isolation read_committed --wide --iso DATA
records --tail 2 DATA
records --around 3 DATA
records --from-time 2020-01-01 --to-offset 30 --sample 3 DATA
records --output OUT/records.parquet DATA
count DATA
count --deep DATA
txns --wide --iso DATA
producers --sample 2 --wide --iso DATA
advise DATA
verify DATA
audit --deep --all-findings DATA
index check DATA
index build --output OUT/indexes DATA
report --output OUT/report.html DATA
recover DATA
salvage DATA OUT/salvaged
diff DATA HEALTHY
diff --compacted HEALTHY DATA
sql SQL DATA
""".strip().splitlines()]  # fmt: skip
_SQL = "SELECT count(*), max(r.timestamp), max(b.max_timestamp) FROM records r, batches b"
_ON_PARTITION = [line.split() for line in """
index lookup --offset 9223372036854775807 DATA
index lookup --offset 30 --trust-index DATA
index lookup --timestamp 1714000000000 DATA
index lookup --timestamp 2100-01-01 --trust-index DATA
convert --compression-type gzip --output OUT/converted DATA
restamp --partition-leader-epoch 7 --output OUT/restamped DATA
scrub --from-offset 3 --to-offset 9 --output OUT/scrubbed DATA
""".strip().splitlines()]  # fmt: skip
_ON_STATE = [line.split() for line in """
groups --show offsets --format jsonl DATA
groups --show pending --wide --iso DATA
groups --show groups --wide --iso DATA
groups --show members --wide --iso DATA
groups --as-of 5 DATA
groups --as-of 2100-01-01 --show unknown DATA
txn-state --wide --iso DATA
txn-state --show contradictions --wide --iso DATA
txn-state --show unknown DATA
share-state --show partitions --wide --iso DATA
share-state --show batches --wide --iso DATA
metadata --show topics --wide --iso DATA
metadata --show brokers --wide --iso DATA
metadata --show controllers --wide --iso DATA
metadata --show partitions --wide --iso DATA
metadata --show configs --wide --iso DATA
metadata --show features --wide --iso DATA
metadata --show scram --wide --iso DATA
metadata --show acls --wide --iso DATA
metadata --show quotas --wide --iso DATA
metadata --show tokens --wide --iso DATA
metadata --show unknown DATA
metadata --diff 5 17 DATA
metadata --as-of 2100-01-01 DATA
remote-segments --show segments --wide --iso DATA
remote-segments --show deletions --wide --iso DATA
remote-segments --output OUT/remote.parquet DATA
records --decode auto --format jsonl DATA
records --decode auto --wide --iso DATA
audit DATA
report --output OUT/report.html DATA
""".strip().splitlines()]  # fmt: skip
_ON_TEXTS = [line.split() for line in """
info DATA
count DATA
records --tail 2 DATA
index lookup --offset 30 DATA/x-0
metadata --wide DATA
audit --all-findings DATA
report --output OUT/report.html DATA
salvage DATA OUT/salvaged
recover DATA
""".strip().splitlines()]  # fmt: skip
_ON_TIER = [line.split() for line in """
info DATA/tier
count DATA/tier
records --tail 2 DATA/tier
txns --wide --iso DATA/tier
audit --all-findings DATA/tier
remote-segments --wide --iso DATA/tier
diff DATA/tier DATA/local
salvage DATA/tier OUT/salvaged
restore DATA/tier
restore DATA/tier OUT/restored
""".strip().splitlines()]  # fmt: skip
_ON_REGISTRY = [line.split() for line in """
schemas DATA
schemas list --wide --iso DATA
schemas usage DATA --topic orders
schemas export DATA OUT/schemas
records --value-as auto DATA/orders-0
audit DATA
""".strip().splitlines()]  # fmt: skip
_ON_VALUES = [line.split() for line in """
records --value-as auto --format jsonl DATA/values-0
records --value-as auto --format csv DATA/values-0
records --value-as auto --sort value DATA/values-0
records --value-as json --json-schema inferred DATA/values-0
sql SQL --value-as auto DATA/values-0 --format jsonl
""".strip().splitlines()]  # fmt: skip
_AT_LAST = [["recover", "--write", "--truncate", "--no-backup", "DATA"]]


_VIEWS = ("records", "batches", "segments")
_REFUSE = ("restamp", "convert", "scrub")
"""Commands that are wrong usage for some logs."""


# ---- steps ---------------------------------------------------------------------------------------


def data_steps(data: Path, healthy: Path, out: Path) -> Iterator[Step]:
    """Yield the commands on a data directory; the last one writes into it."""
    shown = {"DATA": data, "HEALTHY": healthy, "OUT": out, "SQL": _SQL}
    for view in _VIEWS:
        read = partial(rows, path=str(data), view=view, mode="PERMISSIVE")
        yield f"Spark's view {view}", read
    for line in (*_ON_LOGS, *_AT_LAST):
        yield _command([shown.get(word, word) for word in _placed(line, out)])


def state_steps(data: Path, out: Path) -> Iterator[Step]:
    """Yield the commands and functions about Kafka's own topics."""
    for line in _ON_STATE:
        yield _command([data if word == "DATA" else word for word in _placed(line, out)])
    for topic, option in DECODER_OPTIONS.items():
        logs = sorted(data.glob(f"{topic}-*/*.log"))
        for form in ("text", "jsonl"):
            line = ["dump-log", f"--{option}", "--format", form, "--files"]
            yield _command([*line, ",".join(map(str, logs))])
    read: Sequence[Callable[[Path], TableSet]] = (
        ks.read_groups, ks.read_transaction_state, ks.read_share_state, ks.read_metadata,
        ks.internal_topics.read_remote_segments,
    )  # fmt: skip
    for one in read:
        yield one.__name__, partial(_convert, one, data)


def _convert(read: Callable[[Any], TableSet], data: object) -> None:
    for table in read(data).tables.values():
        table.to_arrow()
        table.to_pandas()
        table.to_json()


def tier_steps(data: Path, out: Path) -> Iterator[Step]:
    """Yield the commands and functions about tiers; the folder `local` has the same partition."""
    for line in _ON_TIER:
        words = [word.replace("DATA", str(data)) for word in _placed(line, out)]
        yield _command(words)
    place = data / "tier"
    yield "open_tiered", partial(_read_tier, place, data / "local")
    for view in _VIEWS:
        read = partial(rows, path=str(place), view=view, tieredLayout="auto", mode="PERMISSIVE")
        yield f"Spark's view {view}", read


def _read_tier(place: Path, local: Path) -> None:
    tier = ks.tiered.open_tiered(place)
    tier.topic_sizes()
    tier.join(ks.open_log_dir(local))
    _convert(ks.internal_topics.read_remote_segments, tier)
    files = [file for one in tier.remote_segments for file in (one.log, *one.side_files.values())]
    for read in (lambda: ks.scan_log_dir(tier).to_arrow(), *(file.read for file in files)):
        with suppress(KafkaScanError):
            read()


def registry_steps(data: Path, out: Path) -> Iterator[Step]:
    """Yield the commands and functions about a schema registry."""
    for line in _ON_REGISTRY:
        yield _command([word.replace("DATA", str(data)) for word in _placed(line, out)])
    yield "open_registry", partial(_read_registry, data)


def _read_registry(data: Path) -> None:
    registry = ks.schemas.open_registry(data)
    registry.to_table().to_arrow()
    for number in EXTREMES:
        registry.schema(number)
        registry.version("orders-value", number)
    list(ks.schemas.import_requests(registry))
    ks.read_records(data / "orders-0", value=registry).to_arrow()


def typed_steps(data: Path, out: Path) -> Iterator[Step]:
    """Yield the commands and functions about typed values."""
    for line in _ON_VALUES:
        words = ["SELECT * FROM records" if word == "SQL" else word for word in _placed(line, out)]
        yield _command([word.replace("DATA", str(data)) for word in words])
    yield "read_records with types", partial(_read_values, data)
    # Spark's reads do not guess the message of Protobuf values.
    is_protobuf = b"proto3" in (data / "_schemas-0" / f"{0:020}.log").read_bytes()
    options = {"registry": str(data), **({"valueMessage": "T"} if is_protobuf else {})}
    yield "Spark's records with types", partial(rows, path=str(data), topics="values", **options)


def _read_values(data: Path) -> None:
    registry = ks.schemas.open_registry(data)
    table = ks.read_records(data / "values-0", value=registry)
    table.to_arrow().validate(full=True)
    table.to_pandas()
    table.rows()
    ks.polars.scan_records(data / "values-0", value=registry).collect()


def text_steps(data: Path, out: Path) -> Iterator[Step]:
    """Yield the commands and functions about texts and names."""
    state = ks.broker_state
    read: Mapping[str, Callable[[Path], object]] = {
        "*-offset-checkpoint": state.read_offset_checkpoint,
        "*/leader-epoch-checkpoint": state.read_leader_epochs,
        "*/partition.metadata": state.read_partition_metadata,
        "meta.properties": state.read_meta_properties,
        ".kafka_cleanshutdown": state.read_clean_shutdown,
    }
    for pattern, function in read.items():
        for path in sorted(data.glob(pattern)):
            yield _command(["index", "show", path])
            yield f"{function.__name__} {path}", partial(function, path)
    for line in (*_ON_TEXTS, *_AT_LAST):
        yield _command([data if word == "DATA" else word for word in _placed(line, out)])


def partition_steps(partition: Path, out: Path) -> Iterator[Step]:
    """Yield the commands on a partition and on its files, and the functions."""
    for line in _ON_PARTITION:
        words = _placed(line, out)
        yield _command([partition if word == "DATA" else word for word in words])
    files = sorted(path for path in partition.iterdir() if path.suffix in _DUMPED)
    if files:
        listed = ",".join(map(str, files))
        yield _command(["dump-log", "--print-data-log", "--files", listed])
        yield _command(["dump-log", "--index-sanity-check", "--files", listed])
    for path in files:
        yield _command(["dump-log", "--deep-iteration", "--files", path])
        if path.suffix != ".log":
            yield _command(["index", "show", path])
    for name, action in _functions_on(partition):
        yield f"{name} {partition}", action
    for log in sorted(partition.glob("*.log")):
        for name, action in _functions_of(log):
            yield f"{name} {log}", action


_DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _placed(line: Sequence[str], out: Path) -> list[str]:
    return [word.replace("OUT", str(out)) if word.startswith("OUT/") else word for word in line]


def _command(words: Sequence[object]) -> Step:
    return " ".join(map(str, words)), partial(_run, words)


def _run(words: Sequence[object]) -> None:
    done = run(*words)
    assert EXIT_CLEAN <= done.returncode <= EXIT_UNREADABLE, done.stderr
    assert done.returncode != 2 or words[0] in _REFUSE, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


def _functions_on(partition: Path) -> Iterator[Step]:
    yield "scan_log_dir", lambda: [*ks.scan_log_dir(partition, include="all").to_arrow().columns]
    yield "read_records", lambda: ks.read_records(partition).to_arrow()
    for isolation in ("read_uncommitted", "read_committed"):
        read = partial(ks.iter_records, partition, isolation=isolation, on_corrupt="stop")
        yield f"iter_records {isolation}", lambda read=read: [one.to_pandas() for one in read()]
    yield "read_producer_state", lambda: ks.analysis.read_producer_state(partition)
    yield "read_committed_view", lambda: ks.logs.read_committed_view(partition)
    for value in EXTREMES:
        yield f"lookup_offset {value}", partial(ks.lookup_offset, partition, value)
        yield f"lookup_timestamp {value}", partial(ks.lookup_timestamp, partition, _time(value))


def _time(milliseconds: int) -> TimeLike:
    """Return a time; as a plain number, some would be taken for seconds and refused."""
    if milliseconds * 1000 in THIS_CENTURY:
        return np.datetime64(milliseconds, "ms")
    return milliseconds


def _functions_of(log: Path) -> Iterator[Step]:
    batches = ks.scan_batches(log, on_corrupt="resync").batches
    base_offset = min(max(int(log.stem), 0), EXTREMES[-1])
    for name, build in (("index", ks.build_offset_index), ("timeindex", ks.build_time_index)):
        yield f"build {name}", partial(build, batches, base_offset=base_offset, interval_bytes=1)
        index = log.with_suffix(f".{name}")
        if index.exists():
            yield f"check {name}", partial(ks.check_index, index, batches)
            yield f"read {name}", partial(ks.read_index, index)
    yield "check_batches", partial(ks.check_batches, batches)
    yield "verify_crcs", partial(ks.verify_crcs, log, batches)
    yield "validate_batches", partial(ks.validate_batches, log)
    yield "convert_records", partial(ks.convert_records, log, compression_type="zstd")
    keep = ks.rewrite.without_offsets(3, 9)
    yield "filter_records", partial(ks.filter_records, log, keep=keep)
    if (batches["magic"] == 2).all():
        yield "restamp", partial(ks.restamp, log, max_timestamp=5)
    yield "iter_batches", lambda: [*ks.iter_batches(log, rows=2)]
    yield "read_records", lambda: ks.read_records(log, on_corrupt="stop").to_polars()
    yield "scan_records", lambda: ks.polars.scan_records(log).collect()
    yield from _functions_of_batches(log, batches)


def _functions_of_batches(log: Path, batches: np.ndarray) -> Iterator[Step]:
    for name in ks.batches.COLUMN_NAMES:
        if name not in (batches.dtype.names or ()):
            yield f"column {name}", partial(ks.batches.column, batches, name)
    yield "summarize", partial(ks.batches.summarize, batches)
    for value in EXTREMES:
        time = _time(value)
        yield f"select_offsets {value}", partial(ks.batches.select_offsets, batches, value, value)
        yield f"select_times {value}", partial(ks.batches.select_times, batches, time, time)
    state = ks.broker_state
    yield "build_leader_epochs", partial(state.build_leader_epochs, batches)
    yield "build_producer_snapshot", partial(state.build_producer_snapshot, log)
    yield "build_transaction_index", partial(state.build_transaction_index, log)
    yield "fingerprint_batches", partial(ks.analysis.fingerprint_batches, batches)
    snapshot = log.with_suffix(".snapshot")
    if snapshot.exists():
        yield "read_producer_snapshot", partial(state.read_producer_snapshot, snapshot)


# ---- the process that tries them -----------------------------------------------------------------


class Tries:
    """Tries steps, and prints which ones fail; a step that hangs ends the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failed = 0
        warnings.simplefilter("ignore", IncompleteTableWarning)
        warnings.simplefilter("ignore", TieredStorageWarning)
        warnings.simplefilter("error", RuntimeWarning)

    def attempt(self, step: Step, refused: type[Exception] = KafkaScanError) -> None:
        """Try a step; `refused` is the error for numbers that it does not take."""
        name, action = step
        print(f"trying {name}", flush=True)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            action()
        except (KafkaScanError, refused):
            pass
        except Exception:
            self.failed += 1
            print(f"FAILED {name}\n{traceback.format_exc(limit=-6)}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def attempt_partitions(self, cases: Iterable[Case], healthy: Path) -> None:
        """Try each case as a partition; a data directory has a group of them."""
        rest = iter(cases)
        for some in iter(lambda: list(islice(rest, _GROUP)), []):
            with self._data_dir() as (data, out):
                for number, case in enumerate(some):
                    write(data / f"x-{number}", case)
                for partition in sorted(data.iterdir()):
                    self._attempt_all(partition_steps(partition, out))
                self._attempt_all(data_steps(data, healthy, out))

    def attempt_data_dirs(self, cases: Iterable[Case], steps: CaseSteps) -> None:
        """Try steps on each case as a data directory."""
        for case in cases:
            with self._data_dir() as (data, out):
                write(data, case)
                self._attempt_all(steps(data, out))

    @contextmanager
    def _data_dir(self) -> Iterator[tuple[Path, Path]]:
        """Create a data directory and a folder for results."""
        data, out = self.folder / "data", self.folder / "out"
        data.mkdir()
        out.mkdir()
        yield data, out
        shutil.rmtree(data)
        shutil.rmtree(out)

    def _attempt_all(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.attempt(step)


def write(folder: Path, case: Case) -> None:
    """Write the files of a case, and print its name."""
    print(f"{folder} is the case: {case.name}")
    for name, data in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


CaseSteps = Callable[[Path, Path], Iterator[Step]]


def try_families(folder: Path, shares: Mapping[str, float], part: int, parts: int) -> int:
    """
    Try a part of a share of the cases of each family, always the same ones.

    Returns
    -------
    int
        The number of steps that failed.
    """
    if not IS_SANITIZED:
        resource.setrlimit(resource.RLIMIT_DATA, (_LARGEST_HEAP, _LARGEST_HEAP))
    tries, healthy = Tries(folder), folder / "healthy"
    files = partition_files(healthy / "x-0")
    base = folder / "base"
    partitions: Mapping[str, Callable[[], Iterable[Case]]] = {
        "single numbers": lambda: singles(files),
        "pairs of numbers": lambda: pairs(files),
        "covered pairs": lambda: covered_pairs(files),
        "names": lambda: named(files),
        "offsets": lambda: shifted(base / "shifted"),
        "older formats": legacy,
    }

    def chosen(family: str, cases: Iterable[Case]) -> Iterator[Case]:
        return islice(sampled(cases, shares[family]), part, None, parts)

    # In common groups, as the commands on a data directory take longer than those on a partition.
    of_partitions = (chosen(one, cases()) for one, cases in partitions.items() if one in shares)
    tries.attempt_partitions(chain.from_iterable(of_partitions), healthy)
    places: Mapping[str, tuple[Callable[[], Iterable[Case]], CaseSteps]] = {
        "messages": (lambda: message_cases(base / "state"), state_steps),
        "data directories": (lambda: of_data_dirs(data_dir_files(base / "texts")), text_steps),
        "tiers": (lambda: tier_cases(base / "tiers"), tier_steps),
        "registries": (registry_cases, registry_steps),
        "typed values": (typed_cases, typed_steps),
    }
    for family, (cases, steps) in places.items():
        if family in shares:
            tries.attempt_data_dirs(chosen(family, cases()), steps)
    if "arguments" in shares:
        put_local(folder / "tier", healthy / "x-0")
        (folder / "written").mkdir()
        steps = argument_steps(healthy / "x-0", folder / "written")
        for step in islice(sampled(steps, shares["arguments"]), part, None, parts):
            tries.attempt(step, ValueError)
    return tries.failed
