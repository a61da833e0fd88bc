package kafkascan.oracle;

import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/** Drops records as the cleaner does it: "dropped" names their offsets, "retention" the retention of each batch. */
final class FilterJob {
    private FilterJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        ByteBuffer data = ByteBuffer.wrap(arguments.get("data").binaryValue());
        ByteBuffer out = ByteBuffer.allocate(4 * data.remaining() + (1 << 16));
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            MemoryRecords.FilterResult result = MemoryRecords.readableRecords(data)
                .filterTo(new ListedFilter(arguments), out, BufferSupplier.NO_CACHING, Integer.MAX_VALUE);
            ByteBuffer filtered = result.outputBuffer().duplicate();
            filtered.flip();
            byte[] bytes = new byte[filtered.remaining()];
            filtered.get(bytes);
            answer.put("data", bytes);
            answer.put("bytesRead", result.bytesRead());
            answer.put("messagesRead", result.messagesRead());
            answer.put("messagesRetained", result.messagesRetained());
            answer.put("bytesRetained", result.bytesRetained());
            answer.put("maxOffset", result.maxOffset());
        } catch (RuntimeException thrown) {
            answer.put("exception", Rebuild.describe(thrown));
        }
        return answer;
    }

    private static final class ListedFilter extends RecordFilter {
        private final Set<Long> dropped = new HashSet<>();
        private final JsonNode retention;
        private final JsonNode emptyTransactions;
        private int batchIndex;

        ListedFilter(JsonNode arguments) {
            super(arguments.path("now").asLong(0), arguments.path("deleteRetentionMs").asLong(0));
            arguments.get("dropped").forEach(offset -> dropped.add(offset.asLong()));
            retention = arguments.path("retention");
            emptyTransactions = arguments.path("emptyTransactions");
        }

        @Override
        protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
            int index = batchIndex++;
            BatchRetention chosen = BatchRetention.valueOf(retention.path(index).asText("DELETE_EMPTY"));
            return new BatchRetentionResult(chosen, emptyTransactions.path(index).asBoolean(false));
        }

        @Override
        protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
            return !dropped.contains(record.offset());
        }
    }
}
