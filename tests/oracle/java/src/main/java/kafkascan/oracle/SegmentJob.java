package kafkascan.oracle;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogSegments;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Recovers one segment, among the others of its directory, in the steps of LogLoader.recoverSegment. */
final class SegmentJob {
    private SegmentJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        Path directory = Path.of(arguments.get("directory").asText());
        int repeat = arguments.path("repeat").asInt(0);
        if (repeat == 0) {
            recover(directory.toFile(), arguments, answer);
        } else {
            Repeated.run(arguments, answer, scratch -> recover(scratch.toFile(), arguments, answer));
        }
        return answer;
    }

    /** Gives the seconds of LogSegment.recover alone. */
    private static double recover(File directory, JsonNode arguments, Map<String, Object> answer) throws Exception {
        try (Storage storage = new Storage(directory, arguments)) {
            LogSegments segments = open(storage);
            LogSegment segment = segments.get(arguments.get("baseOffset").asLong()).orElseThrow();
            LeaderEpochFileCache epochs = UnifiedLog.createLeaderEpochCache(
                directory, storage.partition, storage.failures, Optional.empty(), storage.scheduler);
            ProducerStateManager producers = storage.producerStateManager();
            double seconds = Double.NaN;
            try {
                UnifiedLog.rebuildProducerState(
                    producers, segments, storage.logStartOffset(), segment.baseOffset(), storage.time, false, "");
                long start = System.nanoTime();
                answer.put("truncatedBytes", segment.recover(producers, epochs));
                seconds = (System.nanoTime() - start) / 1e9;
                producers.takeSnapshot();
                answer.put("mapEndOffset", producers.mapEndOffset());
            } catch (IOException | RuntimeException thrown) {
                answer.put("exception", Rebuild.describe(thrown));
            }
            storage.settle();
            segments.closeQuietly();
            return seconds;
        }
    }

    private static LogSegments open(Storage storage) throws IOException {
        LogSegments segments = new LogSegments(storage.partition);
        for (long base : bases(storage.directory)) {
            segments.add(LogSegment.open(storage.directory, base, storage.config, storage.time, true, 0, false, ""));
        }
        return segments;
    }

    private static Iterable<Long> bases(File directory) {
        TreeSet<Long> bases = new TreeSet<>();
        for (File file : directory.listFiles()) {
            if (LogFileUtils.isLogFile(file)) {
                bases.add(LogFileUtils.offsetFromFile(file));
            }
        }
        return bases;
    }
}
