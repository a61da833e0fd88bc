package kafkascan.oracle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

/** Reads batches as a consumer that checks everything: each batch and record has to be valid. */
final class ReadJob {
    private ReadJob() {
    }

    static Map<String, Object> run(JsonNode job) throws IOException {
        Map<String, Object> answer = new LinkedHashMap<>();
        List<Map<String, Object>> batches = new ArrayList<>();
        List<Object> records = new ArrayList<>();
        answer.put("batches", batches);
        answer.put("records", records);
        try {
            int position = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(job.get("bytes").binaryValue())).batches()) {
                batch.ensureValid();
                batches.add(BatchFields.describe(batch, position));
                position += batch.sizeInBytes();
                for (Record record : batch) {
                    record.ensureValid();
                    records.add(describe(record));
                }
            }
            answer.put("validBytes", position);
        } catch (RuntimeException thrown) {
            answer.put("exception", Rebuild.describe(thrown));
        }
        return answer;
    }

    private static List<Object> describe(Record record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key().getBytes(StandardCharsets.UTF_8), header.value()));
        }
        return Arrays.asList(
            record.offset(), record.timestamp(), record.sequence(), RecordFields.bytes(record.key()),
            RecordFields.bytes(record.value()), headers);
    }
}
