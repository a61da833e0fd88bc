package kafkascan.oracle;

import java.time.Duration;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a consumer group that reads some records, commits and leaves. */
final class Groups {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int MAX_POLLS = 150;

    private final String bootstrapServers;

    Groups(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    void addCommandsTo(Map<String, ClientDriver.Command> commands) {
        commands.put("consumeAndCommit", this::consumeAndCommit);
    }

    private Object consumeAndCommit(JsonNode arguments) {
        Map<String, Object> config = Arguments.clientConfig(bootstrapServers, arguments);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        int wanted = arguments.get("count").asInt();
        int seen = 0;
        try (Consumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments.get("topic").asText()));
            for (int poll = 0; poll < MAX_POLLS && seen < wanted; poll++) {
                seen += consumer.poll(POLL).count();
            }
            consumer.commitSync();
        }
        return seen;
    }
}
