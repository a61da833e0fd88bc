"""Damage random logs, salvage them, and collect the verdicts of the oracle."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import kafkascan as ks
from kafkascan.batches.resyncing.offset_evidence import HIGHEST_OFFSET
from kafkascan.recovery.salvaging.segment_salvage import salvage_segment
from tests.damage.recovery.campaign.broker_logs import FIRST_OF_BROKERS, log_of_a_broker
from tests.damage.recovery.campaign.damage_kinds import KINDS
from tests.damage.recovery.campaign.known_logs import KnownLog, TrackedBytes, random_log
from tests.damage.recovery.campaign.more_damage import MORE_KINDS
from tests.damage.recovery.campaign.more_logs import FIRST_NUMBER, log_of_more_shapes
from tests.damage.recovery.campaign.named_cases import require_named
from tests.damage.recovery.campaign.oracle import Oracle
from tests.damage.recovery.campaign.rearrangements import FIRST_REARRANGED, rearranged
from tests.damage.recovery.campaign.results import crcs_are_valid

_FILES_EVERY = 50
_MOST_KINDS = (1, 1, 1, 2, 2, 3)


def damaged_log(number: int) -> tuple[KnownLog, TrackedBytes, list[str]]:
    """Return a log, its damaged bytes, and the kinds of its damage."""
    choice = random.Random(number)
    if FIRST_REARRANGED <= number < FIRST_OF_BROKERS:
        log = choice.choice([random_log, log_of_more_shapes])(choice)
        damaged = TrackedBytes.of(log)
        kinds = rearranged(choice, log, damaged)
        damaged.insert(len(damaged.data), bytes(log.zero_tail))
        return log, damaged, kinds
    has_more = number >= FIRST_NUMBER
    if number >= FIRST_OF_BROKERS:
        log = log_of_a_broker(choice)
    else:
        log = log_of_more_shapes(choice) if has_more else random_log(choice)
    known = MORE_KINDS if has_more else KINDS
    damaged = TrackedBytes.of(log)
    kinds = choice.choices(list(known), k=choice.choice(_MOST_KINDS))
    for kind in kinds:
        known[kind](choice, log, damaged)
    damaged.insert(len(damaged.data), bytes(log.zero_tail))
    return log, damaged, kinds


class Campaign:
    """
    Verdicts of many damaged logs.

    Parameters
    ----------
    folder : Path
        An empty folder. Some logs are also salvaged as files, in folders within it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.logs = 0
        self.violations: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()

    def run(self, number: int) -> None:
        """Salvage the log of a number, and add the verdicts."""
        log, damaged, kinds = damaged_log(number)
        self.kinds.update(kinds)
        self.logs += 1
        verdicts = [*self._verdicts(log, damaged, knows_epochs=number % 2 == 0)]
        if number % _FILES_EVERY == 0:
            verdicts += self._verdicts_of_files(log, damaged)
        for verdict in verdicts:
            require_named(verdict)
            if "VIOLATION" in verdict:
                self.violations.append(f"{number} {kinds}: {verdict}")
            else:
                self.verdicts[verdict] += 1

    def _verdicts(
        self, log: KnownLog, damaged: TrackedBytes, *, knows_epochs: bool
    ) -> Iterator[str]:
        oracle = Oracle(log, damaged)
        source = ks.Source(oracle.data)
        found = ks.scan_batches(oracle.data, on_corrupt="resync")
        rows = oracle.rows_of_scan(found)
        yield from (f"resync, {one}" for one in oracle.losses(rows, HIGHEST_OFFSET))
        segment, repaired = salvage_segment(
            source,
            "0.log",
            log.base_offset,
            highest=log.highest,
            known_epochs=log.epochs if knows_epochs else (),
        )
        repaired = repaired.whole()
        kept = oracle.rows_of_salvage(segment, repaired)
        yield from (f"salvage, {one}" for one in oracle.losses(kept, log.highest))
        yield from (f"salvage, {one}" for one in oracle.strangers(kept, repaired.repairs))
        yield from (f"salvage, {one}" for one in oracle.changes(kept, repaired.repairs))
        if not crcs_are_valid(oracle.repaired(repaired), repaired.batches):
            yield "VIOLATION salvage: a wrong checksum"
        firsts, lasts = (
            np.array([getattr(one, name) for one in kept]) for name in ("first", "last")
        )
        if len(kept) and not (firsts[1:] > lasts[:-1]).all():
            yield "VIOLATION salvage: offsets do not ascend"
        self.verdicts["batches kept as they were"] += sum(one.row is not None for one in kept)

    def _verdicts_of_files(self, log: KnownLog, damaged: TrackedBytes) -> Iterator[str]:
        """Compare the file that `salvage` writes with the batches that it reports."""
        source, target = self._folder / "topic-0", self._folder / "copy"
        source.mkdir()
        name = f"{log.base_offset:020}.log"
        (source / name).write_bytes(bytes(damaged.data))
        (one,) = ks.salvage(source, target, threads=1).partitions
        (segment,) = one.segments
        copy = (target / name) if target.exists() else one.destination / name
        size = sum(piece.size for piece in segment.pieces)
        scan = ks.scan_batches(copy)
        if not (copy.stat().st_size == segment.kept_bytes == size == scan.valid_bytes):
            yield "VIOLATION files: the copy has another size than the kept ranges"
        elif not crcs_are_valid(copy.read_bytes(), scan.batches):
            yield "VIOLATION files: a wrong checksum"
        else:
            yield "salvaged as files"
        shutil.rmtree(source)
        shutil.rmtree(one.destination or target)

    def summary(self, show: int) -> str:
        """Return counts of damage and verdicts, and the first violations."""
        lines = [f"{self.logs:>9} logs", ""]
        lines += [f"{count:>9} {kind}" for kind, count in sorted(self.kinds.items())]
        lines += ["", *(f"{count:>9} {text}" for text, count in sorted(self.verdicts.items()))]
        groups = Counter(one.split(": ", 1)[1].split(":")[0] for one in self.violations)
        lines += ["", f"violations: {len(self.violations)}"]
        lines += [f"{count:>9} {text}" for text, count in sorted(groups.items())]
        return "\n".join([*lines, *self.violations[:show]])
