package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/**
 * Converts records between formats: "down" as for an old consumer's fetch, "up" as for an old producer's request.
 *
 * <p>One JSON job per line of standard input, one JSON answer per line of standard output.
 */
public final class Convert {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Convert() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(JsonNode job) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(job.get("data").binaryValue()));
            MemoryRecords converted = job.get("command").asText().equals("down") ? down(records, job) : up(records, job);
            ByteBuffer buffer = converted.buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            answer.put("data", bytes);
        } catch (RuntimeException | IOException thrown) {
            answer.put("exception", Map.of("class", thrown.getClass().getName(), "message", "" + thrown.getMessage()));
        }
        return answer;
    }

    private static MemoryRecords down(MemoryRecords records, JsonNode job) {
        return (MemoryRecords) records.downConvert((byte) job.get("toMagic").asInt(), 0L, Time.SYSTEM).records();
    }

    private static MemoryRecords up(MemoryRecords records, JsonNode job) {
        CompressionType source = CompressionType.NONE;
        for (RecordBatch batch : records.batches()) {
            source = batch.compressionType();
        }
        CompressionType target = CompressionType.forName(job.path("compressionType").asText(source.name));
        return new LogValidator(
            records, new TopicPartition("t", 0), Time.SYSTEM, source, Compression.of(target).build(), false,
            (byte) job.get("toMagic").asInt(), TimestampType.CREATE_TIME, Long.MAX_VALUE, Long.MAX_VALUE,
            job.path("leaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH), AppendOrigin.CLIENT,
            MetadataVersion.latestTesting()
        ).validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(job.path("firstOffset").asLong(0)), new Unmeasured(), BufferSupplier.NO_CACHING
        ).validatedRecords;
    }

    /** Nobody looks at these. */
    private static final class Unmeasured implements LogValidator.MetricsRecorder {
        @Override
        public void recordInvalidMagic() {
        }

        @Override
        public void recordInvalidOffset() {
        }

        @Override
        public void recordInvalidSequence() {
        }

        @Override
        public void recordInvalidChecksums() {
        }

        @Override
        public void recordNoKeyCompactedTopic() {
        }
    }
}
