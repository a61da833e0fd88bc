package kafkascan.oracle;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Loads a log and asks it where offsets and timestamps are; an answer that does not exist is null.
 *
 * <p>"offsets" are asked of the segment that their offset belongs to and of the log, pairs of "segmentTimestamps" (a
 * timestamp, a starting offset) of every segment, "timestamps" of the log, pairs of "aborted" (from, up to) of the log.
 */
final class LookupJob {
    private static final int SMALL_FETCH = 1;

    private LookupJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        File directory = new File(arguments.get("directory").asText());
        try (Storage storage = new Storage(directory, arguments)) {
            UnifiedLog log = storage.load();
            storage.settle();
            answer.put("offsets", each(arguments.path("offsets"), node -> offset(log, node.asLong())));
            answer.put("segmentTimestamps", each(arguments.path("segmentTimestamps"), node -> segmentTimestamp(log, node)));
            answer.put("timestamps", each(arguments.path("timestamps"), node -> timestamp(log, node.asLong())));
            answer.put("aborted", each(arguments.path("aborted"), node -> aborted(log, node)));
            if (arguments.path("repeat").asInt(0) > 0) {
                time(log, arguments, answer);
            }
            log.close();
        }
        return answer;
    }

    /** One question. */
    @FunctionalInterface
    private interface Question {
        Object ask(JsonNode node) throws Exception;
    }

    private static List<Object> each(JsonNode nodes, Question question) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode node : nodes) {
            try {
                answers.add(question.ask(node));
            } catch (Exception thrown) {
                answers.add(Map.of("exception", Rebuild.describe(thrown)));
            }
        }
        return answers;
    }

    private static Object offset(UnifiedLog log, long offset) throws IOException {
        Map<String, Object> answer = new LinkedHashMap<>();
        Optional<LogSegment> floor = segmentOf(log, offset);
        answer.put("segment", floor.map(LogSegment::baseOffset).orElse(null));
        if (floor.isPresent()) {
            LogSegment segment = floor.get();
            OffsetPosition entry = segment.offsetIndex().lookup(offset);
            answer.put("indexEntry", List.of(entry.offset(), entry.position()));
            FileRecords.LogOffsetPosition found = segment.translateOffset(offset);
            answer.put("translated", found == null ? null : List.of(found.offset, found.position, found.size));
            answer.put("segmentRead", start(segment.read(offset, SMALL_FETCH, Optional.of((long) segment.size()), true)));
        }
        answer.put("logRead", logRead(log, offset));
        return answer;
    }

    private static Object logRead(UnifiedLog log, long offset) throws IOException {
        try {
            return start(log.read(offset, SMALL_FETCH, FetchIsolation.LOG_END, true));
        } catch (org.apache.kafka.common.errors.OffsetOutOfRangeException outside) {
            return "OffsetOutOfRangeException";
        }
    }

    /** Where a fetch begins: segment, position, and how many bytes the smallest fetch gives. */
    private static List<Object> start(FetchDataInfo read) {
        return read == null ? null : List.of(
            read.fetchOffsetMetadata.segmentBaseOffset,
            read.fetchOffsetMetadata.relativePositionInSegment,
            read.records.sizeInBytes());
    }

    private static Object segmentTimestamp(UnifiedLog log, JsonNode pair) throws IOException {
        Map<String, Object> answer = new LinkedHashMap<>();
        long timestamp = pair.get(0).asLong();
        for (LogSegment segment : log.logSegments()) {
            TimestampOffset entry = segment.timeIndex().lookup(timestamp);
            Map<String, Object> found = new LinkedHashMap<>();
            found.put("indexEntry", List.of(entry.timestamp(), entry.offset()));
            found.put("found", found(segment.findOffsetByTimestamp(timestamp, pair.get(1).asLong(), Integer.MAX_VALUE)));
            answer.put(Long.toString(segment.baseOffset()), found);
        }
        return answer;
    }

    private static Object timestamp(UnifiedLog log, long timestamp) {
        return found(log.fetchOffsetByTimestamp(timestamp, Optional.empty()).timestampAndOffsetOpt());
    }

    private static List<Object> found(Optional<FileRecords.TimestampAndOffset> found) {
        return found.map(one -> Arrays.<Object>asList(one.timestamp, one.offset, one.leaderEpoch.orElse(null)))
            .orElse(null);
    }

    private static Object aborted(UnifiedLog log, JsonNode pair) {
        return log.collectAbortedTransactions(pair.get(0).asLong(), pair.get(1).asLong()).stream()
            .map(one -> List.of(one.producerId(), one.firstOffset(), one.lastOffset(), one.lastStableOffset()))
            .toList();
    }

    private static Optional<LogSegment> segmentOf(UnifiedLog log, long offset) {
        return log.logSegments().stream().filter(one -> one.baseOffset() <= offset).reduce((first, last) -> last);
    }

    /** The median nanoseconds of one question over all, of the second half of the repetitions. */
    private static void time(UnifiedLog log, JsonNode arguments, Map<String, Object> answer) {
        answer.put("offsetNs", medianNs(arguments, "offsets", node ->
            segmentOf(log, node.asLong()).orElseThrow().translateOffset(node.asLong())));
        answer.put("timestampNs", medianNs(arguments, "timestamps", node -> timestamp(log, node.asLong())));
    }

    private static Double medianNs(JsonNode arguments, String name, Question question) {
        JsonNode nodes = arguments.path(name);
        int repeat = arguments.get("repeat").asInt();
        double[] nanos = new double[repeat];
        for (int i = 0; i < repeat; i++) {
            long start = System.nanoTime();
            each(nodes, question);
            nanos[i] = (double) (System.nanoTime() - start) / Math.max(1, nodes.size());
        }
        double[] counted = Arrays.copyOfRange(nanos, repeat / 2, repeat);
        Arrays.sort(counted);
        return nodes.isEmpty() ? null : counted[counted.length / 2];
    }
}
