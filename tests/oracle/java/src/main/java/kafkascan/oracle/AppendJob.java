package kafkascan.oracle;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Appends the batches of a file to a log, one by one, as a follower does, and closes it as a broker that stops. */
final class AppendJob {
    private static final int ANY_EPOCH = Integer.MAX_VALUE;

    private AppendJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        File directory = new File(arguments.get("directory").asText());
        byte[] batches = Files.readAllBytes(Path.of(arguments.get("batches").asText()));
        try (Storage storage = new Storage(directory, arguments)) {
            UnifiedLog log = storage.load();
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(batches)).batches()) {
                ByteBuffer one = ByteBuffer.allocate(batch.sizeInBytes());
                batch.writeTo(one);
                one.flip();
                log.appendAsFollower(MemoryRecords.readableRecords(one), ANY_EPOCH);
            }
            answer.put("logEndOffset", log.logEndOffset());
            answer.put("segments", log.logSegments().stream().map(LogSegment::baseOffset).toList());
            LoadJob.stop(log);
            storage.settle();
        }
        return answer;
    }
}
