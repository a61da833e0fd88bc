"""Log start offsets (``DeleteRecords``) of the partitions of a listing, local or in a store."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from kafkascan.broker_state.checkpoints import LOG_START_CHECKPOINT, parse_offset_checkpoint
from kafkascan.broker_state.offset_checkpoints import CheckpointReader, CheckpointWarning
from kafkascan.format.errors import CorruptCheckpointError
from kafkascan.io.folders import SideFileTooLargeError, require_side_file_size
from kafkascan.io.sources import Source
from kafkascan.io.stores.object_stores import ObjectStore
from kafkascan.logs.log_dir import PartitionDir
from kafkascan.spark.options.reader_options import Options


class LogStarts:
    """
    Finds the log start offsets of partitions, by the rule of `kafkascan.logs`.

    The option `log_start_offset` applies to all files. Without it, the offset of a partition is
    the one in the ``log-start-offset-checkpoint`` next to its folder. Brokers ignore a corrupt
    checkpoint; this class does so with a `CheckpointWarning`. Each checkpoint is read once.
    """

    def __init__(self, options: Options) -> None:
        self._given = options.log_start_offset
        self._local = CheckpointReader()
        self._in_stores: dict[str, dict[tuple[str, int], int]] = {}
        self._listed: dict[str, Mapping[str, int]] = {}

    def of_named_file(self) -> int:
        """Return the offset of a file that is given as such: by default, its first one."""
        return self._given or 0

    def of_folder(self, partition: PartitionDir) -> int:
        """Return the offset of a partition in a local data dir."""
        if self._given is not None:
            return self._given
        return self._local.offset_of(partition, LOG_START_CHECKPOINT)

    def add_listing(self, url: str, sizes: Mapping[str, int]) -> None:
        """Add the objects below a URL, by their sizes: a checkpoint among them needs no search."""
        self._listed[f"{url.rstrip('/')}/"] = sizes

    def of_objects(self, store: ObjectStore, folder: str, partition: PartitionDir) -> int:
        """Return the offset of a partition whose folder is a URL."""
        if self._given is not None or partition.topic is None or partition.partition is None:
            return self._given or 0
        data_dir = folder.rpartition("/")[0]
        if data_dir not in self._in_stores:
            self._in_stores[data_dir] = self._read(store, f"{data_dir}/{LOG_START_CHECKPOINT}")
        return self._in_stores[data_dir].get((partition.topic, partition.partition), 0)

    def _read(self, store: ObjectStore, url: str) -> dict[tuple[str, int], int]:
        size = self._size_of(store, url)
        if not size:
            return {}
        try:
            require_side_file_size(size, url)
            data = Source(store.open(url, size, size)).window(0, size)
            return parse_offset_checkpoint(bytes(data), url)
        except FileNotFoundError:  # deleted since the listing
            return {}
        except (SideFileTooLargeError, CorruptCheckpointError) as error:
            warnings.warn(f"{url} is ignored: {error}", CheckpointWarning, stacklevel=2)
            return {}

    def _size_of(self, store: ObjectStore, url: str) -> int:
        """Return the size of an object; 0 if it does not exist."""
        for folder, sizes in self._listed.items():
            if url.startswith(folder):
                return sizes.get(url, 0)
        is_object, found = store.list(url)
        return found[0].size if is_object else 0
