package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Prints every header field that Kafka's own classes know of each batch of a segment, one JSON object per line.
 *
 * <p>Each line of standard input is one file: tab-separated, the segment and the file to write. The last line written
 * for a segment is {"end": ...}: "clean", "partial" (the last batch is cut short), or the exception that ended the
 * iteration.
 */
public final class BatchFields {
    private static final ObjectMapper JSON = new ObjectMapper();

    private BatchFields() {
    }

    public static void main(String[] args) throws IOException {
        BufferedReader files = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = files.readLine(); line != null; line = files.readLine()) {
            String[] fields = line.split("\t");
            try (PrintStream out = new PrintStream(fields[1], StandardCharsets.UTF_8)) {
                printSegment(ByteBuffer.wrap(Files.readAllBytes(Path.of(fields[0]))), out);
            }
        }
    }

    private static void printSegment(ByteBuffer segment, PrintStream out) throws JsonProcessingException {
        int size = segment.remaining();
        int position = 0;
        String end;
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(segment).batches()) {
                out.println(JSON.writeValueAsString(describe(batch, position)));
                position += batch.sizeInBytes();
            }
            end = position == size ? "clean" : "partial";
        } catch (RuntimeException damage) {
            end = damage.toString();
        }
        out.println(JSON.writeValueAsString(endOfSegment(end, position, size)));
    }

    /** How reading a segment ended, and where. */
    static Map<String, Object> endOfSegment(String end, int position, int size) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("end", end);
        fields.put("validBytes", position);
        fields.put("trailingBytes", size - position);
        return fields;
    }

    static Map<String, Object> describe(RecordBatch batch, int position) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("position", position);
        fields.put("baseOffset", batch.baseOffset());
        fields.put("lastOffset", batch.lastOffset());
        fields.put("nextOffset", batch.nextOffset());
        fields.put("sizeInBytes", batch.sizeInBytes());
        fields.put("magic", batch.magic());
        fields.put("checksum", batch.checksum());
        fields.put("isValid", batch.isValid());
        fields.put("compressionType", batch.compressionType().name);
        fields.put("timestampType", batch.timestampType().name);
        fields.put("baseTimestamp", baseTimestamp(batch));
        fields.put("maxTimestamp", batch.maxTimestamp());
        fields.put("producerId", batch.producerId());
        fields.put("producerEpoch", batch.producerEpoch());
        fields.put("baseSequence", batch.baseSequence());
        fields.put("lastSequence", batch.lastSequence());
        fields.put("partitionLeaderEpoch", batch.partitionLeaderEpoch());
        fields.put("isTransactional", batch.isTransactional());
        fields.put("isControlBatch", batch.isControlBatch());
        fields.put("deleteHorizonMs", nullable(batch.deleteHorizonMs()));
        fields.put("countOrNull", batch.countOrNull());
        return fields;
    }

    /** The first 8 bytes of time in a v2 header; message formats 0 and 1 have no such field. */
    private static Long baseTimestamp(RecordBatch batch) {
        return batch instanceof DefaultRecordBatch v2 ? v2.baseTimestamp() : null;
    }

    private static Long nullable(OptionalLong value) {
        return value.isPresent() ? value.getAsLong() : null;
    }
}
