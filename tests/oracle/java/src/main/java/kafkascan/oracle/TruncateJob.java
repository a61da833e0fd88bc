package kafkascan.oracle;

import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Truncates a loaded log, as a follower does, and appends what its leader has instead.
 *
 * <p>What a running broker's directory is like then is kept in a copy, ".truncated" behind its name.
 */
final class TruncateJob {
    private static final int ANY_EPOCH = Integer.MAX_VALUE;

    private TruncateJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        Path directory = Path.of(arguments.get("directory").asText());
        byte[] batches = Base64.getDecoder().decode(arguments.get("data").asText());
        try (Storage storage = new Storage(directory.toFile(), arguments)) {
            UnifiedLog log = storage.load();
            log.truncateTo(arguments.get("offset").asLong());
            if (batches.length > 0) {
                log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(batches)), ANY_EPOCH);
            }
            storage.settle();
            Directories.copy(directory, directory.resolveSibling(directory.getFileName() + ".truncated"));
            answer.put("logEndOffset", log.logEndOffset());
            LoadJob.stop(log);
            storage.settle();
        }
        return answer;
    }
}
