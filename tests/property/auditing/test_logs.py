"""Transactions, producers, counts and audits of any logs: against slow twins, and any bytes."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import kafkascan as ks
from kafkascan.batches.columns import last_offset
from kafkascan.broker_state.index_checks import IndexScreen, check_entries
from kafkascan.broker_state.markers import read_control_rows
from kafkascan.format.errors import KafkaScanError
from tests.property.recovery.test_recovery import FILES, partition
from tests.support.examples import examples
from tests.support.logs import WrittenLog
from tests.support.segments import T0, V2_FIELDS

SEEDS = st.integers(0, 10_000)


@contextmanager
def written(seed: int, segments: int, steps: int = 60) -> Iterator[tuple[Path, WrittenLog]]:
    log = WrittenLog(random.Random(seed)).write(steps, list(range(5)))
    count = len(log.batches)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "topic-0"
        folder.mkdir()
        for part in range(segments):
            start, stop = count * part // segments, count * (part + 1) // segments
            base_offset, data = log.segment(start, stop)
            (folder / f"{base_offset:020}.log").write_bytes(data)
        yield folder, log


class Twin:
    """A broker and its consumers, batch by batch."""

    def __init__(self, folder: Path) -> None:
        self.opened: dict[int, list[tuple[int, int, int]]] = {}
        self.ended: list[tuple[int, int, int, int, int]] = []
        self.batches: list[tuple[int, int, bool, int, int]] = []
        for path in sorted(folder.glob("*.log")):
            batches = ks.scan_batches(path).batches
            with ks.Source(path) as source:
                control = read_control_rows(source, batches)
            kinds = dict(zip(control.rows.tolist(), control.markers["kind"].tolist(), strict=True))
            for row, end in enumerate(last_offset(batches).tolist()):
                self.add(batches[row], end, kinds.get(row))

    def add(self, batch: np.void, end: int, kind: int | None) -> None:
        producer, offset = int(batch["producer_id"]), int(batch["base_offset"])
        count = int(batch["records_count"])
        is_transactional = bool(batch["attributes"] & 16)
        known = -1 if kind is None else kind
        self.batches.append((offset, producer, is_transactional, count, known))
        if kind is not None:
            mine = self.opened.pop(producer, [])
            first = mine[0][0] if mine else -1
            last = mine[-1][1] if mine else -1
            self.ended.append((producer, kind, first, last, sum(one[2] for one in mine)))
        elif is_transactional:
            self.opened.setdefault(producer, []).append((offset, end, count))

    def stable(self, end: int) -> int:
        return min((one[0][0] for one in self.opened.values()), default=end)

    def seen(self, end: int) -> list[int]:
        """Base offsets of the batches that a read_committed consumer gets."""
        stable, hidden = self.stable(end), set()
        opened: dict[int, list[int]] = {}
        for offset, producer, is_transactional, _, kind in self.batches:
            if kind >= 0:
                mine = opened.pop(producer, [])
                hidden |= set(mine) if kind == 0 else set()
            elif is_transactional:
                opened.setdefault(producer, []).append(offset)
        return [
            offset
            for offset, _, _, _, kind in self.batches
            if kind < 0 and offset < stable and offset not in hidden
        ]


@examples(40)
@given(seed=SEEDS, segments=st.integers(1, 6), threads=st.sampled_from([1, 2]))
def test_transactions_producers_and_counts(seed: int, segments: int, threads: int) -> None:
    with written(seed, segments) as (folder, log):
        found = ks.read_transactions(folder, threads=threads)
        twin = Twin(folder)
        spans = found.spans
        ended = spans[spans["state"] != ks.broker_state.TransactionState.OPEN]
        names = ["producer_id", "state", "first_offset", "last_offset", "records"]
        assert [tuple(one) for one in ended[names].tolist()] == twin.ended
        opened = {
            int(one["producer_id"]): (int(one["first_offset"]), int(one["records"]))
            for one in spans[found.is_open]
        }
        assert opened == {
            producer: (mine[0][0], sum(one[2] for one in mine))
            for producer, mine in twin.opened.items()
        }
        assert [tuple(map(int, one.tolist()[1:])) for one in found.aborted()] == log.aborted
        assert found.last_stable_offsets[0] == twin.stable(log.next_offset)
        assert found.end_offsets[0] == log.next_offset

        known = {int(one["producer_id"]): one for one in ks.analysis.read_producer_state(folder)}
        assert set(known) == set(log.producers)
        for producer, one in log.producers.items():
            assert int(known[producer]["last_sequence"]) == one.last_sequence
            assert int(known[producer]["producer_epoch"]) == one.epoch
            assert int(known[producer]["current_txn_first_offset"]) == one.first_offset

        row = ks.count_records(folder, threads=threads).counts[0]
        data = [one for one in twin.batches if one[4] < 0]
        seen = twin.seen(log.next_offset)
        assert row["records"] == sum(one[3] for one in data)
        assert row["transactional_records"] == sum(one[3] for one in data if one[2])
        assert row["committed_records"] == sum(one[3] for one in data if one[0] in set(seen))
        assert row["control_records"] == len(twin.batches) - len(data)
        assert row["missing_offsets"] == 0

        committed = [
            int(table["base_offset"][index])
            for path in sorted(folder.glob("*.log"))
            for table in ks.iter_records(path, columns=["base_offset"], isolation="read_committed")
            for index in range(len(table))
        ]
        assert list(dict.fromkeys(committed)) == seen


@examples(40)
@given(seed=SEEDS, segments=st.integers(1, 6))
def test_the_census_counts_as_a_slow_one(seed: int, segments: int) -> None:
    with written(seed, segments) as (folder, _):
        census = ks.read_producers(folder, threads=2)
        expected: dict[int, list[int]] = {}
        state: dict[int, tuple[int, int]] = {}
        for path in sorted(folder.glob("*.log")):
            batches = ks.scan_batches(path).batches
            for row, batch in enumerate(batches):
                producer = int(batch["producer_id"])
                counts = expected.setdefault(producer, [0] * 6)
                epoch, known = state.get(producer, (-1, -1))
                if batch["attributes"] & 32:
                    counts[1] += 1
                    state[producer] = (
                        int(batch["producer_epoch"]),
                        (known if epoch == batch["producer_epoch"] else -1),
                    )
                    continue
                counts[0] += 1
                counts[2] += int(batch["records_count"])
                if producer < 0:
                    continue
                now, base = int(batch["producer_epoch"]), int(batch["base_sequence"])
                if now < epoch:
                    counts[5] += 1
                    continue
                wanted = None
                if now != epoch:
                    wanted = 0 if epoch >= 0 else None
                elif known >= 0:
                    wanted = (known + 1) % 2**31
                if wanted is not None and base != wanted:
                    counts[3 if (base - wanted) % 2**31 < 2**30 else 4] += 1
                state[producer] = now, int(ks.batches.last_sequence(batches[row : row + 1])[0])
        names = ["batches", "markers", "records", "sequence_gaps", "duplicates", "fenced"]
        ours = {
            int(one["producer_id"]): [int(one[name]) for name in names] for one in census.counts
        }
        assert ours == expected


@examples(50)
@given(
    seed=st.integers(0, 20),
    segments=st.integers(1, 3),
    files=FILES,
    flips=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=4),
    deep=st.booleans(),
)
def test_any_bytes(
    seed: int, segments: int, files: dict[str, bytes], flips: list[tuple[int, int]], deep: bool
) -> None:
    """Any bytes give a result, and the same one again."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "topic-0"
        folder.mkdir()
        partition(folder, seed, segments)
        logs = sorted(folder.glob("*.log"))
        for position, change in flips:
            log = logs[position % len(logs)]
            data = bytearray(log.read_bytes())
            if data:
                data[position % len(data)] ^= change
                log.write_bytes(data)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        found = ks.audit(root, deep=deep, now_ms=T0)
        assert found.findings == ks.audit(root, deep=deep, now_ms=T0, threads=1).findings
        assert found.logs == 1
        for read in (ks.read_transactions, ks.read_producers, ks.count_records):
            try:
                table = read(root).to_columns()
            except KafkaScanError:
                continue
            assert table


def hostile(base_offset: int, **fields: int) -> bytes:
    from tests.support.segments import batch_v2

    return batch_v2(b"x", base_offset=base_offset, producer_id=1, **fields)


EDGES = st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**62, 2**63 - 1])
SMALL_EDGES = st.sampled_from([-(2**31), -1, 0, 1, 7, 2**31 - 1])


@examples(100)
@given(
    batches=st.lists(
        st.tuples(EDGES, SMALL_EDGES, SMALL_EDGES, EDGES, EDGES, SMALL_EDGES, st.integers(0, 127)),
        max_size=6,
    )
)
def test_numbers_at_the_limits(batches: list[tuple[int, ...]]) -> None:
    log = b"".join(
        hostile(
            base, last_offset_delta=delta, records_count=count, base_timestamp=first,
            max_timestamp=last, base_sequence=sequence, attributes=attributes & ~32,
        )
        for base, delta, count, first, last, sequence, attributes in batches
    )  # fmt: skip
    ks.audit(log)
    ks.read_producers(log).to_columns()
    ks.read_transactions(log).to_columns()
    ks.count_records(log).to_columns()


@pytest.mark.parametrize("kind", [b"", b"x" * 700, b"\0" * 10240])
def test_tars_of_anything(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "some.tar"
    path.write_bytes(kind)
    with pytest.raises((ks.format.ArchiveError, ks.format.NoLogsError, NotADirectoryError)):
        ks.open_log_dir(path)


@examples(40)
@given(data=st.data(), seed=st.integers(0, 5))
def test_a_damaged_tar_gives_an_answer_or_an_error(data: st.DataObject, seed: int) -> None:
    import io
    import tarfile

    with written(seed, 2, steps=10) as (folder, _):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            tar.add(folder, arcname="data/topic-0")
        content = bytearray(made.getvalue())
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at] = data.draw(st.integers(0, 255))
        content = content[: data.draw(st.sampled_from([len(content), 2000, 5000]))]
        path = folder / "some.tar"
        path.write_bytes(content)
        try:
            ks.audit(path)
        except (KafkaScanError, NotADirectoryError):
            return
        assert sum(map(len, ks.scan_log_dir(path))) >= 0


def flag_everything(*args: object, **options: object) -> int:
    return -1


@examples(50)
@given(
    seed=st.integers(0, 300),
    changes=st.lists(
        st.tuples(
            st.integers(0, 59),
            st.sampled_from(sorted(V2_FIELDS)),
            st.sampled_from([-(2**63), -1, 0, 1, 2, 5, 2**31 - 1, T0 // 1000, 2**62, 2**63 - 1]),
        ),
        max_size=3,
    ),
    segments=st.integers(1, 3),
)
def test_a_screen_hides_nothing(
    seed: int, changes: list[tuple[int, str, int]], segments: int
) -> None:
    """Findings are the same when every property is checked closely."""
    with written(seed, segments) as (folder, _):
        for number, field, value in changes:
            logs = sorted(folder.glob("*.log"))
            log = logs[number % len(logs)]
            data = bytearray(log.read_bytes())
            positions = ks.scan_batches(bytes(data), on_corrupt="stop").batches["position"]
            if len(positions) and field != "batch_length":
                at, code = V2_FIELDS[field]
                bits = 8 * struct.calcsize(">" + code)
                number = value % (1 << bits)
                place = int(positions[number % len(positions)]) + at
                data[place : place + bits // 8] = number.to_bytes(bits // 8, "big")
                log.write_bytes(data)
        ks.broker_state.write_leader_epochs(
            folder / "leader-epoch-checkpoint", [ks.broker_state.LeaderEpoch(0, 0)]
        )
        found = ks.audit(folder, now_ms=T0, verify=False)
        spans = ks.read_transactions(folder, now_ms=T0).spans
        with pytest.MonkeyPatch.context() as patch:
            for module in (
                "broker_state.markers",
                "logs.walking.log_walk",
                "auditing.header_checks",
            ):
                patch.setattr(f"kafkascan.{module}.screen", flag_everything)
            assert ks.audit(folder, now_ms=T0, verify=False).findings == found.findings
            assert ks.read_transactions(folder, now_ms=T0).spans.tolist() == spans.tolist()


@examples(60)
@given(
    seed=st.integers(0, 300),
    chunk=st.integers(1, 40),
    interval=st.sampled_from([0, 60, 300, 4096]),
    changes=st.lists(
        st.tuples(
            st.sampled_from(["index", "timeindex", "log"]),
            st.integers(0, 2**32),
            st.sampled_from([-(2**31), -1, 0, 1, 2, 7, 61, 2**31 - 1]),
        ),
        max_size=3,
    ),
)
def test_a_screen_of_indexes_hides_nothing(
    seed: int, chunk: int, interval: int, changes: list[tuple[str, int, int]]
) -> None:
    """The screen agrees with the full check, and passes valid indexes."""
    with written(seed, 1) as (folder, _):
        (log,) = folder.glob("*.log")
        batches = ks.scan_batches(log.read_bytes(), on_corrupt="stop").batches.copy()
    base = int(log.stem)
    entries = {
        "index": ks.build_offset_index(batches, base_offset=base, interval_bytes=interval),
        "timeindex": ks.build_time_index(batches, base_offset=base, interval_bytes=interval),
    }
    for kind, number, value in changes:
        table = batches if kind == "log" else entries[kind]
        names = (
            ("base_offset", "last_offset_delta", "max_timestamp") if kind == "log"
            else table.dtype.names or ()
        )  # fmt: skip
        if len(table):
            name, row = names[number % len(names)], number // len(names) % len(table)
            table[name][row] = value if number & 1 else int(table[name][row]) + value % 64
    screen = IndexScreen(entries, base)
    for start in range(0, len(batches), chunk):
        screen.add(batches[start : start + chunk])
    for kind, of in entries.items():
        found, known = check_entries(of, batches, base).findings(), screen.findings(kind)
        assert known is None or known == found
        if not changes:
            assert known is not None
