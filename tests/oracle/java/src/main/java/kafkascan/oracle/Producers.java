package kafkascan.oracle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Named producers: records in, offsets out, and the steps of a transaction. */
final class Producers {
    private final String bootstrapServers;
    private final Map<String, Producer<byte[], byte[]>> producers = new HashMap<>();

    Producers(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    void addCommandsTo(Map<String, ClientDriver.Command> commands) {
        commands.put("openProducer", this::open);
        commands.put("write", this::write);
        commands.put("beginTransaction", this::begin);
        commands.put("sendOffsets", this::sendOffsets);
        commands.put("commitTransaction", this::commit);
        commands.put("abortTransaction", this::abort);
        commands.put("closeProducer", this::close);
    }

    private Object open(JsonNode arguments) {
        Map<String, Object> config = Arguments.clientConfig(bootstrapServers, arguments);
        Producer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        if (config.containsKey("transactional.id")) {
            producer.initTransactions();
        }
        producers.put(arguments.get("producer").asText(), producer);
        return null;
    }

    /** Sends all records and then flushes: with a long linger this is one batch per partition. */
    private Object write(JsonNode arguments) throws Exception {
        Producer<byte[], byte[]> producer = named(arguments);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ProducerRecord<byte[], byte[]> producerRecord : JsonRecords.read(arguments)) {
            sent.add(producer.send(producerRecord));
        }
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> written : sent) {
            offsets.add(written.get().offset());
        }
        return offsets;
    }

    private Object begin(JsonNode arguments) {
        named(arguments).beginTransaction();
        return null;
    }

    private Object sendOffsets(JsonNode arguments) {
        TopicPartition partition =
            new TopicPartition(arguments.get("topic").asText(), arguments.get("partition").asInt());
        OffsetAndMetadata offset = new OffsetAndMetadata(arguments.get("offset").asLong());
        named(arguments).sendOffsetsToTransaction(
            Map.of(partition, offset), new ConsumerGroupMetadata(arguments.get("group").asText()));
        return null;
    }

    private Object commit(JsonNode arguments) {
        named(arguments).commitTransaction();
        return null;
    }

    private Object abort(JsonNode arguments) {
        named(arguments).abortTransaction();
        return null;
    }

    private Object close(JsonNode arguments) {
        producers.remove(arguments.get("producer").asText()).close();
        return null;
    }

    private Producer<byte[], byte[]> named(JsonNode arguments) {
        return producers.get(arguments.get("producer").asText());
    }
}
