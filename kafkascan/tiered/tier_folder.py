"""The segments of a partition in remote storage, as the folder that a broker has of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kafkascan.broker_state.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PartitionMetadata,
    partition_metadata_file,
)
from kafkascan.format.file_names import sibling_name
from kafkascan.io.folders import missing_file
from kafkascan.io.sources import SourceLike
from kafkascan.io.stores.prefetching_reader import PrefetchingReader
from kafkascan.io.stores.urls import LARGEST_HINTS
from kafkascan.tiered.tier_files import SyntheticFile, TierFile
from kafkascan.tiered.tier_segments import TierSegment


class TierFolder:
    """
    A `Folder` of files in remote storage, with the names that a broker gives them.

    Parameters
    ----------
    path : Path
        Its name in messages.
    files : dict of str to TierFile
    """

    def __init__(self, path: Path, files: dict[str, TierFile]) -> None:
        self.path = path
        self._files = files

    @property
    def parent(self) -> TierFolder:
        """The parent folder, in which no checkpoints are."""
        return TierFolder(self.path.parent, {})

    def names(self) -> list[str]:
        """Return the names of the files, sorted."""
        return sorted(self._files)

    def _file(self, name: str) -> TierFile:
        try:
            return self._files[name]
        except KeyError:
            raise missing_file(self.path / name) from None

    def size(self, name: str) -> int:
        """Return the size of a file, in bytes."""
        return self._file(name).size

    def source(self, name: str) -> SourceLike:
        """Return the input for a `Source` of a file."""
        source = self._file(name).source()
        if isinstance(source, PrefetchingReader):
            return source.with_index(partial(self._hints_for, name))
        return source

    def _hints_for(self, name: str) -> bytes | None:
        index = self._files.get(sibling_name(name, "index") or "")
        if index is None or not 0 < index.size <= LARGEST_HINTS:
            return None
        try:
            return index.read()
        except OSError:
            return None

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a side file; None if it is missing."""
        return self._files[name].read() if name in self._files else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TierFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"TierFolder({str(self.path)!r})"


def broker_files(segments: Sequence[TierSegment]) -> dict[str, TierFile]:
    """
    Return the files of a partition, by the names that a broker gives them.

    Parameters
    ----------
    segments : sequence of TierSegment
        Of one partition, by base offset, each once.
    """
    files: dict[str, TierFile] = {}
    for number, segment in enumerate(segments):
        files[f"{segment.base_offset:020}.log"] = segment.log
        for kind in ("index", "timeindex", "txnindex"):
            if kind in segment.side_files:
                files[f"{segment.base_offset:020}.{kind}"] = segment.side_files[kind]
        end = _next_offset(segment, segments[number + 1 : number + 2])
        if end is not None and "snapshot" in segment.side_files:
            files[f"{end:020}.snapshot"] = segment.side_files["snapshot"]
    newest = segments[-1]
    if LEADER_EPOCH_CHECKPOINT in newest.side_files:
        files[LEADER_EPOCH_CHECKPOINT] = newest.side_files[LEADER_EPOCH_CHECKPOINT]
    if newest.topic_id is not None:
        with contextlib.suppress(ValueError):  # names of objects may have an id that is none
            content = partition_metadata_file(PartitionMetadata(0, newest.topic_id))
            files[PARTITION_METADATA] = SyntheticFile(content)
    return files


def _next_offset(segment: TierSegment, following: Sequence[TierSegment]) -> int | None:
    """Return the offset that names the snapshot as of the end of a segment."""
    if segment.end_offset is not None:
        return segment.end_offset + 1
    return following[0].base_offset if following else None
