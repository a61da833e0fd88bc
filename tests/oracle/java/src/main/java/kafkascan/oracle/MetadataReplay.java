package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Set;

import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Replays records of the metadata log as brokers and controllers do.
 *
 * <p>Each line of the input has the value of a record in hexadecimal digits. A line with a question mark is answered with
 * the records that a snapshot of the image would contain, a line each, and an empty line; a line with an exclamation mark
 * begins an empty image.
 */
final class MetadataReplay {
    // A loader handles them; the logs contain no aborted transactions.
    private static final Set<MetadataRecordType> TRANSACTIONS =
        Set.of(MetadataRecordType.BEGIN_TRANSACTION_RECORD, MetadataRecordType.END_TRANSACTION_RECORD);

    private MetadataReplay() {
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        MetadataImage image = MetadataImage.EMPTY;
        MetadataDelta delta = deltaOf(image);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("!")) {
                image = MetadataImage.EMPTY;
                delta = deltaOf(image);
            } else if (line.equals("?")) {
                image = delta.apply(new MetadataProvenance(1, 1, 1, true));
                delta = deltaOf(image);
                RecordListWriter writer = new RecordListWriter();
                image.write(writer, new ImageWriterOptions.Builder(image).build());
                writer.records().forEach(record -> output.println(HexFormat.of().formatHex(written(record))));
                output.println();
            } else {
                byte[] value = HexFormat.of().parseHex(line);
                ByteBufferAccessor data = new ByteBufferAccessor(ByteBuffer.wrap(value));
                ApiMessageAndVersion record = MetadataRecordSerde.INSTANCE.read(data, value.length);
                if (!TRANSACTIONS.contains(MetadataRecordType.fromId(record.message().apiKey()))) {
                    delta.replay(record.message());
                }
            }
        }
        output.flush();
    }

    private static MetadataDelta deltaOf(MetadataImage image) {
        return new MetadataDelta.Builder().setImage(image).build();
    }

    private static byte[] written(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        return buffer.array();
    }
}
