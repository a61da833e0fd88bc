package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Prints offset, timestamp and sequence of the records that Kafka finds if it skips keys and values, as its validation
 * of appends does. Standard input and refusals are those of {@link RecordFields}.
 */
public final class SkippedFields {
    private static final ObjectMapper JSON = new ObjectMapper();

    private SkippedFields() {
    }

    public static void main(String[] args) throws IOException {
        BufferedReader files = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = files.readLine(); line != null; line = files.readLine()) {
            String[] fields = line.split("\t");
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(fields[0])));
            try (PrintStream out = new PrintStream(fields[1], StandardCharsets.UTF_8)) {
                int position = 0;
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
                    for (Map<String, Object> record : describe(batch, position)) {
                        out.println(JSON.writeValueAsString(record));
                    }
                    position += batch.sizeInBytes();
                }
            }
        }
    }

    private static List<Map<String, Object>> describe(MutableRecordBatch batch, int position) {
        List<Map<String, Object>> lines = new ArrayList<>();
        try (CloseableIterator<Record> records = batch.skipKeyValueIterator(BufferSupplier.NO_CACHING)) {
            while (records.hasNext()) {
                Record one = records.next();
                Map<String, Object> fields = new LinkedHashMap<>();
                fields.put("position", position);
                fields.put("offset", one.offset());
                fields.put("timestamp", one.timestamp());
                fields.put("sequence", one.sequence());
                lines.add(fields);
            }
        } catch (RuntimeException | Error refusal) {
            return List.of(RecordFields.refusal(refusal, position));
        }
        return lines;
    }
}
