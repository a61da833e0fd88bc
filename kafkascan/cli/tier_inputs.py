"""Paths and URLs of remote storage (tiered storage) as inputs of commands."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkascan.cli.shared_options import (
    Command,
    InputPath,
    option,
)
from kafkascan.format.errors import NoLogsError

if TYPE_CHECKING:
    from kafkascan.cli.run import FindingReport
    from kafkascan.logs.log_dir import LogDir
    from kafkascan.logs.log_finding import PartitionFilter
    from kafkascan.tiered.tier_listing import TieredLogs

_SHOWN_TOPICS = 10


@dataclass(frozen=True)
class TierOptions:
    """
    How to read remote storage.

    Attributes
    ----------
    layout : str or None
        None: as `open_tiered` finds out, where there are no logs of a broker.
    keys : dict of str to str
        Files of private keys, by the ids of the key pairs.
    """

    layout: str | None
    keys: dict[str, str]

    @property
    def is_given(self) -> bool:
        """Whether the options say that the inputs are remote storage."""
        return self.layout is not None or bool(self.keys)

    def open(self, path: Path) -> TieredLogs:
        """Return the segments in remote storage; raise as `open_tiered`."""
        from kafkascan.tiered.tier_listing import open_tiered

        return open_tiered(path, layout=self.layout or "auto", keys=self.keys)

    def find(self, path: Path) -> TieredLogs | None:
        """
        Return the segments in remote storage; None for logs of a broker, and other paths.

        Raises
        ------
        As `open_tiered`.
        """
        return self._logs_at(path)[1]

    def _logs_at(self, path: Path) -> tuple[LogDir | None, TieredLogs | None]:
        """Return logs of a broker, or remote storage; None of both for other paths."""
        from kafkascan.logs.log_finding import find_log_dir

        if self.is_given:
            return None, self.open(path)
        try:
            return find_log_dir(path), None
        except NoLogsError as error:
            try:
                tier = self.open(path)
            except NoLogsError as of_tier:
                # It names folders with logs; a tier whose objects cannot be read is one.
                raise (of_tier if "can be read" in of_tier.reason else error) from None
            if tier.layout == "pinterest":
                raise  # data directories below the path, which the error names
            return None, tier

    def logs_at(
        self, path: Path, wanted: PartitionFilter, report: FindingReport, cluster: Path | None
    ) -> Path | LogDir:
        """Return remote storage, and note it; or else wanted logs, for which no cluster counts."""
        logs, tier = self._logs_at(path)
        if tier is None:
            if cluster is not None:
                raise click.UsageError(f"--cluster is for remote storage, {path} is none")
            return path if logs is None else wanted.partitions(logs)
        report.add(describe_tier(path, tier), is_note=True)
        for line in _describe_topics(tier):
            report.add(f"{path}: {line}", is_note=True)
        return tier


def describe_tier(path: Path, tier: TieredLogs) -> str:
    """Return a sentence about remote storage: its layout, and what it contains."""
    segments = tier.remote_segments
    stored = sum(one.stored_size for one in segments)
    return (
        f"{path}: remote storage, layout {tier.layout}: {len(tier.partitions):,} partitions,"
        f" {len(segments):,} segments, {stored:,} bytes in objects"
    )


def _describe_topics(tier: TieredLogs) -> Iterator[str]:
    """Yield a sentence for each of the largest topics, and one about the others."""
    sizes = tier.topic_sizes()
    for one in sizes[:_SHOWN_TOPICS]:
        topic = one.topic if one.topic_id is None else f"{one.topic} ({one.topic_id})"
        yield f"topic {topic}: {one.segments:,} segments, {one.stored_size:,} bytes in objects"
    others = sizes[_SHOWN_TOPICS:]
    if others:
        total = sum(one.stored_size for one in others)
        yield f"{len(others):,} other topics: {total:,} bytes in objects"


class _KeyPair(click.ParamType):  # type: ignore[type-arg]  # subscripted from click 8.4 on
    name = "key"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[str, str]:
        """Return the id of a key pair and the file of its private key."""
        key_id, _, file = str(value).partition("=")
        if not key_id or not file:
            self.fail(f"{value!r} is not ID=FILE", param, context)
        return key_id, file


CLUSTER = option("--cluster PATH", type=InputPath(),
                 help="A data directory with __remote_log_metadata: report what the cluster knows"
                 " otherwise of remote storage, and deleted topics and retention, if it has the"
                 " metadata log, too.")  # fmt: skip


def with_tier(command: Command) -> Command:
    """Give a command the options of remote storage, as the argument `tier_options`."""
    layout = option("--layout", type=("auto", "aiven", "local", "pinterest"),
                    help="Read PATHS as remote storage (tiered storage), whose objects have these"
                    " names: Aiven's plugin, Kafka's LocalTieredStorage, Pinterest's uploader. By"
                    " default, the first two are found out where there are no logs of a"
                    " broker.")  # fmt: skip
    keys = option("--private-key ID=PEM", "keys", type=_KeyPair(), multiple=True,
                  help="For encrypted remote storage: the file of a private key, by the id of its"
                  " key pair; may be given several times.")  # fmt: skip

    @functools.wraps(command)
    def wrapped(
        *args: Any, layout: str | None, keys: Sequence[tuple[str, str]], **options: Any
    ) -> Any:
        return command(*args, tier_options=TierOptions(layout, dict(keys)), **options)

    return layout(keys(wrapped))
