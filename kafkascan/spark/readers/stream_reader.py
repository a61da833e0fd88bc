"""The stream reader: ``spark.readStream.format("kafkascan")`` follows growing logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkascan.logs.read_committed import CommittedView
from kafkascan.spark.options.option_values import (
    EARLIEST,
    LATEST,
    TopicPartition,
    format_offsets,
    parse_offsets,
)
from kafkascan.spark.options.reader_options import Options
from kafkascan.spark.options.view_schemas import arrow_schema
from kafkascan.spark.planning.planned_logs import PlannedLog
from kafkascan.spark.planning.read_plan import (
    missing_topics,
    require_partitions,
    starting_offset_at,
)
from kafkascan.spark.planning.task_plan import ScanTask, plan
from kafkascan.spark.readers.frames import prepare_worker
from kafkascan.spark.readers.log_ends import LogEnds, Positions, limit_offsets
from kafkascan.spark.rows.damage_modes import logger
from kafkascan.spark.rows.task_scan import scan_task
from kafkascan.tables.schema import Field, require_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class ScanPartition(InputPartition):
    """A task of a read or of a micro-batch."""

    def __init__(self, task: ScanTask) -> None:
        self.task = task


def read_partition(
    partition: InputPartition, options: Options, columns: Sequence[Field]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition, with the nullability that the query's schema declares."""
    assert isinstance(partition, ScanPartition)
    prepare_worker()
    pa = require_pyarrow()
    schema = arrow_schema(columns)
    for batch in scan_task(partition.task, options):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _available_now() -> type:
    """Return the mixin for Trigger.AvailableNow, which exists since Spark 4.2."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return object
    return SupportsTriggerAvailableNow


Logs = dict[TopicPartition, PlannedLog]


class StreamReader(DataSourceStreamReader, _available_now()):  # type: ignore[misc]
    """
    Read a stream of records from growing logs.

    The stream's offsets have the JSON format of Spark's Kafka source: ``{"topic": {"0": 123}}`` is
    the offset of the next record. Partitions that appear later are read from their first record.
    """

    def __init__(self, options: Options, columns: Sequence[Field]) -> None:
        _require_stream(options)
        # A file that is deleted between planning and reading is lost data, like earlier ones.
        self._options = options.replace(ignore_missing_files=not options.fail_on_data_loss)
        self._columns = columns
        self._ends = LogEnds(self._options)
        self._target: Positions | None = None
        self._reached: Positions = {}

    # ---- offsets ----

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets where a new query starts."""
        logs = self._ends.logs()
        require_partitions(set(logs), self._options)
        for topic in missing_topics({topic for topic, _ in logs}, self._options):
            logger.warning("no log of the topic %s exists yet", topic)
        self._reached = {one: self._initial(one, log) for one, log in logs.items()}
        return format_offsets(self._reached)

    def _initial(self, partition: TopicPartition, log: PlannedLog) -> int:
        time = self._options.starting_time(partition)
        if time is not None and time != EARLIEST:
            found = starting_offset_at(log, time, self._options)
            end = self._ends.end_of(log)
            return end if found is None else min(found, end)
        given = self._options.starting_offsets
        if self._options.starts_at_times:
            offset = EARLIEST
        elif isinstance(given, dict):
            offset = int(given.get(partition, EARLIEST))
        else:
            offset = EARLIEST if given == "earliest" else LATEST
        if offset == EARLIEST:
            return log.start_offset
        return self._ends.end_of(log) if offset == LATEST else offset

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch; Spark before 4.2 does not pass `start`."""
        logs = self._ends.logs()
        end = self._target or self._end_offsets(logs)
        begin = dict(self._reached) if start is None else parse_offsets(start)
        end = self._require_kept(begin, dict(end), logs)
        if start is None:
            self._reached = end
            return format_offsets(end)
        for partition, log in logs.items():
            # What no longer exists counts for no limit.
            begin[partition] = max(begin.get(partition, EARLIEST), log.start_offset)
        return format_offsets(self._limited(begin, end, logs, limit))

    def _require_kept(self, start: Positions, end: Positions, logs: Logs) -> Positions:
        """Return ends that are not before the starts; report offsets that no longer exist."""
        for partition, offset in start.items():
            name = f"{partition[0]}-{partition[1]}"
            if partition not in logs:
                self._lose(f"{name} no longer exists; the stream was at offset {offset}")
            elif (first := logs[partition].start_offset) > offset:
                self._lose(f"{name}: offsets {offset} to {first - 1} no longer exist")
            elif partition in end and end[partition] < offset:
                # Not lost if the log has these offsets after its last stable offset.
                written = self._ends.written_end_of(logs[partition])
                if written < offset:
                    self._lose(f"{name} ends at {written}; the stream was at offset {offset}")
            end[partition] = max(offset, end.get(partition, offset))
        return end

    def _lose(self, message: str) -> None:
        if self._options.fail_on_data_loss:
            raise ValueError(f"{message} (failOnDataLoss=false continues)")
        logger.warning("%s", message)

    def _limited(self, start: Positions, end: Positions, logs: Logs, limit: object) -> Positions:
        if type(limit).__name__ == "ReadAllAvailable":
            return end
        most_offsets = self._options.max_offsets_per_trigger
        if most_offsets is not None:
            end = limit_offsets(most_offsets, start, end)
        most_bytes = self._options.max_bytes_per_trigger
        if most_bytes is not None:
            waiting = [one for one in end if end[one] > start[one] and one in logs]
            share = most_bytes // max(1, len(waiting))
            for one in waiting:
                reach = self._ends.offset_after(logs[one], start[one], share)
                end[one] = min(end[one], reach)
        return end

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit that Spark passes to `latestOffset`."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the logs end, for the progress report."""
        return format_offsets(self._end_offsets(self._ends.logs()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end offsets at which the query stops."""
        self._target = self._end_offsets(self._ends.logs())

    def unread_tails(self) -> list[str]:
        """Return a message for each log whose last bytes were no complete batches."""
        return self._ends.unread_tails()

    def _end_offsets(self, logs: Logs) -> Positions:
        return {one: self._ends.end_of(log) for one, log in logs.items()}

    # ---- rows ----

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch."""
        begin, stop = parse_offsets(start), parse_offsets(end)
        logs = self._ends.logs()
        grown = [one for one in stop if stop[one] > begin.get(one, EARLIEST) and one in logs]
        # Spark before 4.2 does not pass the start of a query that goes on to `latestOffset`.
        read_on = [one for one in begin if one in grown or one not in stop]
        self._require_kept({one: begin[one] for one in read_on}, dict(stop), logs)
        self._reached |= stop
        options = self._options.replace(
            starting_offsets={one: begin.get(one, EARLIEST) for one in grown},
            ending_offsets=stop,
            starting_timestamp=None,
            starting_offsets_by_timestamp=None,
        )
        read = [logs[one] for one in sorted(grown)]
        views = {log.folder: self._view(log, stop[log.partition]) for log in read}
        tasks = plan(read, options, views={k: v for k, v in views.items() if v is not None})
        return [ScanPartition(replace(task, has_stops=True)) for task in tasks]

    def _view(self, log: PlannedLog, stop: int) -> CommittedView | None:
        """Return how the transactions before `stop` ended; later transactions do not change it."""
        view = self._ends.view_of(log)
        if view is not None and max(view.last_stable_offset, log.start_offset) < stop:
            name = f"{log.partition[0]}-{log.partition[1]}"
            self._lose(f"{name} is only stable up to {view.last_stable_offset}, not to {stop}")
        return view

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_partition(partition, self._options, self._columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint stores the offsets."""

    def stop(self) -> None:
        """Do nothing: no resources are held between calls."""


def _require_stream(options: Options) -> None:
    """Raise `ValueError` for options that a stream does not support."""
    if options.view != "records":
        raise ValueError(f"a stream requires the view 'records', not {options.view!r}")
    if options.ending_offsets != "latest" or options.ends_at_times:
        raise ValueError(
            "a stream has no end: endingOffsets, endingOffsetsByTimestamp and endingTimestamp are"
            " for batch queries"
        )
