package kafkascan.oracle;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.producer.ProducerRecord;

/** Turns the "records" of a command into producer records; keys, values and header values are base64 or null. */
final class JsonRecords {
    private JsonRecords() {
    }

    static List<ProducerRecord<byte[], byte[]>> read(JsonNode arguments) throws IOException {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (JsonNode node : arguments.get("records")) {
            records.add(readOne(node));
        }
        return records;
    }

    private static ProducerRecord<byte[], byte[]> readOne(JsonNode node) throws IOException {
        ProducerRecord<byte[], byte[]> producerRecord = new ProducerRecord<>(
            node.get("topic").asText(),
            node.get("partition").asInt(),
            node.path("timestamp").isNumber() ? node.get("timestamp").asLong() : null,
            bytes(node.get("key")),
            bytes(node.get("value")));
        for (JsonNode header : node.get("headers")) {
            producerRecord.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return producerRecord;
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node.isNull() ? null : node.binaryValue();
    }
}
