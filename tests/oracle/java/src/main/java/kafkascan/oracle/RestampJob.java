package kafkascan.oracle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;

/** Rewrites header fields of batches with Kafka's setters; a value for each batch, or none. */
final class RestampJob {
    private RestampJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws IOException {
        byte[] data = arguments.get("data").binaryValue();
        JsonNode types = arguments.path("timestampTypes");
        int index = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            if (arguments.has("lastOffsets")) {
                batch.setLastOffset(arguments.get("lastOffsets").get(index).asLong());
            }
            if (arguments.has("leaderEpochs")) {
                batch.setPartitionLeaderEpoch(arguments.get("leaderEpochs").get(index).asInt());
            }
            if (arguments.has("maxTimestamps")) {
                TimestampType type = types.isMissingNode() ? batch.timestampType()
                    : types.get(index).asInt() == 1 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
                batch.setMaxTimestamp(type, arguments.get("maxTimestamps").get(index).asLong());
            }
            index++;
        }
        return Map.of("data", data, "batches", index);
    }
}
