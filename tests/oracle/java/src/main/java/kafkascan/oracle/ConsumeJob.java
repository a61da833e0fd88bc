package kafkascan.oracle;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Loads a log and reads it from its start to its end as a consumer does, in fetches of at most "maxBytes".
 *
 * <p>A fetch gives whole batches. A consumer skips records before its position, which is the offset after the last batch.
 */
final class ConsumeJob {
    private ConsumeJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        File directory = new File(arguments.get("directory").asText());
        try (Storage storage = new Storage(directory, arguments)) {
            UnifiedLog log = storage.load();
            storage.settle();
            log.updateHighWatermark(log.logEndOffset());
            answer.put("logEndOffset", log.logEndOffset());
            consume(log, arguments.get("maxBytes").asInt(), answer);
            log.close();
        }
        return answer;
    }

    private static void consume(UnifiedLog log, int maxBytes, Map<String, Object> answer) throws Exception {
        List<Object> records = new ArrayList<>();
        List<Object> fetches = new ArrayList<>();
        long position = log.logStartOffset();
        try {
            while (true) {
                FetchDataInfo fetched = log.read(position, maxBytes, FetchIsolation.HIGH_WATERMARK, true);
                long next = position;
                for (RecordBatch batch : fetched.records.batches()) {
                    for (Record record : batch) {
                        if (record.offset() >= position) {
                            records.add(List.of(record.offset(), text(record.value())));
                        }
                    }
                    next = batch.nextOffset();
                }
                if (next == position) {
                    break;
                }
                fetches.add(List.of(position, fetched.fetchOffsetMetadata.segmentBaseOffset, next));
                position = next;
            }
        } catch (OffsetOutOfRangeException outside) {
            answer.put("outOfRange", position);
        }
        answer.put("position", position);
        answer.put("fetches", fetches);
        answer.put("records", records);
    }

    private static String text(ByteBuffer value) {
        return value == null ? "" : StandardCharsets.UTF_8.decode(value.duplicate()).toString();
    }
}
