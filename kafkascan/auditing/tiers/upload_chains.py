"""Logs without overlaps and gaps, of the uploads of a partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from kafkascan.batches.columns import next_offset
from kafkascan.batches.scan import scan_batches
from kafkascan.format.errors import KafkaScanError
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.tiered.tier_listing import TieredLogs
from kafkascan.tiered.tier_segments import TierFolder, TierSegment, broker_files

Chain = tuple[PartitionDir, list[TierSegment]]


def upload_chains(tier: TieredLogs) -> list[Chain]:
    """
    Return the partitions of a tier, each with its segments; overlaps and gaps make several of one.

    Uploads of several leaders may overlap. Each chain is a log whose batches, producers and
    epochs follow each other.
    """
    groups = groupby(tier.remote_segments, lambda one: (one.topic, one.topic_id, one.partition))
    chains: list[Chain] = []
    for partition, (_, segments) in zip(tier.partitions, groups, strict=True):
        found = [list(segments)] if tier.layout == "pinterest" else _split(segments)
        if len(found) == 1:
            chains.append((partition, found[0]))
            continue
        for one in found:
            folder = TierFolder(partition.path, broker_files(one))
            chains.append((replace(partition, folder=folder), one))
    return chains


def _split(segments: Iterable[TierSegment]) -> list[list[TierSegment]]:
    chains: list[tuple[int, list[TierSegment]]] = []
    for segment in segments:
        end = _end_of(segment)
        for number, (before, chain) in enumerate(chains):
            if before == segment.base_offset:
                chains[number] = end, [*chain, segment]
                break
        else:
            chains.append((end, [segment]))
    return [chain for _, chain in chains]


def _end_of(segment: TierSegment) -> int:
    """Return the offset after the last one of a segment, as the manifest or the batches say it."""
    if segment.end_offset is not None:
        return segment.end_offset + 1
    try:
        batches = scan_batches(segment.log.source(), on_corrupt="stop").batches
    except (KafkaScanError, OSError):
        return segment.base_offset  # the audit of the log reports it
    return int(next_offset(batches[-1:])[0]) if len(batches) else segment.base_offset
