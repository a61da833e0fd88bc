package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Prints every record that Kafka's own readers find in a segment, one JSON object per line.
 *
 * <p>Each line of standard input is one file: tab-separated, the segment and the file to write. A batch that cannot be
 * read to its end has one line instead of its records, which names the exception. The last line written for a segment
 * is that of {@link BatchFields}.
 *
 * <p>Batches are iterated as a consumer does it. Checksums are not verified: neither those of the batches nor those of
 * the messages in a wrapper.
 */
public final class RecordFields {
    private static final ObjectMapper JSON = new ObjectMapper();

    private RecordFields() {
    }

    public static void main(String[] args) throws IOException {
        BufferedReader files = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = files.readLine(); line != null; line = files.readLine()) {
            String[] fields = line.split("\t");
            try (FileRecords segment = FileRecords.open(Path.of(fields[0]).toFile(), false);
                    PrintStream out = new PrintStream(fields[1], StandardCharsets.UTF_8)) {
                printSegment(segment, out);
            }
        }
    }

    private static void printSegment(FileRecords segment, PrintStream out) throws JsonProcessingException {
        int position = 0;
        String end;
        try {
            for (RecordBatch batch : segment.batches()) {
                for (Map<String, Object> line : describe(batch, position)) {
                    out.println(JSON.writeValueAsString(line));
                }
                position += batch.sizeInBytes();
            }
            end = position == segment.sizeInBytes() ? "clean" : "partial";
        } catch (RuntimeException damage) {
            end = damage.toString();
        }
        out.println(JSON.writeValueAsString(BatchFields.endOfSegment(end, position, segment.sizeInBytes())));
    }

    private static List<Map<String, Object>> describe(RecordBatch batch, int position) {
        List<Map<String, Object>> lines = new ArrayList<>();
        try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
            while (records.hasNext()) {
                lines.add(describe(records.next(), batch, position));
            }
        } catch (RuntimeException | Error refusal) {
            // Errors, too: SnappyError is one, and sizes that damage made huge end in OutOfMemoryError.
            return List.of(refusal(refusal, position));
        }
        return lines;
    }

    static Map<String, Object> refusal(Throwable exception, int position) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("position", position);
        fields.put("exception", exception.getClass().getName());
        fields.put("message", exception.getMessage());
        return fields;
    }

    private static Map<String, Object> describe(Record record, RecordBatch batch, int position) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("position", position);
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        // Records of magic 2 do not know it; a consumer takes it from the batch, too.
        fields.put("timestampType", batch.timestampType().name);
        fields.put("sequence", record.sequence());
        fields.put("key", bytes(record.key()));
        fields.put("value", bytes(record.value()));
        fields.put("headers", headers(record));
        return fields;
    }

    private static List<byte[][]> headers(Record record) {
        List<byte[][]> pairs = new ArrayList<>();
        for (Header header : record.headers()) {
            pairs.add(new byte[][] {header.key().getBytes(StandardCharsets.UTF_8), header.value()});
        }
        return pairs;
    }

    /** Jackson writes an array of bytes as base64. */
    static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return copy;
    }
}
