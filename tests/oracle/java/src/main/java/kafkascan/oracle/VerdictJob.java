package kafkascan.oracle;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** Appends records to an empty log as a leader or a follower does, and tells what became of it. */
final class VerdictJob {
    private static final short TRANSACTIONS_V1 = 1;

    private VerdictJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        Path directory = Path.of(arguments.get("directory").asText());
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(arguments.get("data").binaryValue()));
        AppendOrigin origin = AppendOrigin.valueOf(arguments.get("origin").asText());
        Files.createDirectories(directory);
        try (Storage storage = new Storage(directory.toFile(), arguments)) {
            UnifiedLog log = storage.load();
            int epoch = arguments.path("leaderEpoch").asInt(0);
            try {
                if (origin == AppendOrigin.REPLICATION) {
                    log.appendAsFollower(records, epoch);
                } else {
                    log.appendAsLeader(
                        records, epoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL, TRANSACTIONS_V1);
                }
            } catch (RuntimeException thrown) {
                answer.put("exception", Rebuild.describe(thrown));
            }
            log.flush(true);
            log.close();
            storage.settle();
        }
        answer.put("log", Files.readAllBytes(directory.resolve("0".repeat(20) + ".log")));
        return answer;
    }
}
