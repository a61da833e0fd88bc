package kafkascan.oracle;

import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Loads a partition's log as a starting broker does, and closes it as a stopping one does.
 *
 * <p>What the directory is like in between is kept in a copy, ".loaded" behind its name.
 */
final class LoadJob {
    private LoadJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        Path directory = Path.of(arguments.get("directory").asText());
        int repeat = arguments.path("repeat").asInt(0);
        if (repeat == 0) {
            load(directory, arguments, answer);
        } else {
            Repeated.run(arguments, answer, scratch -> load(scratch, arguments, answer));
        }
        return answer;
    }

    /** Gives the seconds of UnifiedLog.create alone. */
    private static double load(Path directory, JsonNode arguments, Map<String, Object> answer) throws Exception {
        double seconds = Double.NaN;
        try (Storage storage = new Storage(directory.toFile(), arguments)) {
            String doing = "exception";
            try {
                long start = System.nanoTime();
                UnifiedLog log = storage.load();
                seconds = (System.nanoTime() - start) / 1e9;
                storage.settle();
                describe(log, answer);
                answer.put("sizesLoaded", Directories.sizes(directory));
                if (!arguments.has("repeat")) {
                    Directories.copy(directory, directory.resolveSibling(directory.getFileName() + ".loaded"));
                }
                doing = "closingException";
                stop(log);
            } catch (Exception thrown) {
                answer.put(doing, Rebuild.describe(thrown));
            }
            storage.settle();
        }
        answer.put("sizesClosed", Directories.sizes(directory));
        return seconds;
    }

    /** As LogManager.shutdown does it. */
    static void stop(UnifiedLog log) {
        log.prepareActiveSegmentForClose();
        log.flush(true);
        log.close();
    }

    private static void describe(UnifiedLog log, Map<String, Object> answer) {
        answer.put("logStartOffset", log.logStartOffset());
        answer.put("localLogStartOffset", log.localLogStartOffset());
        answer.put("logEndOffset", log.logEndOffset());
        answer.put("recoveryPoint", log.recoveryPoint());
        answer.put("lastStableOffset", log.firstUnstableOffset().orElse(log.logEndOffset()));
        answer.put("mapEndOffset", log.producerStateManager().mapEndOffset());
        answer.put("segments", log.logSegments().stream().map(LogSegment::baseOffset).toList());
        answer.put("segmentSizes", log.logSegments().stream().map(LogSegment::size).toList());
    }
}
