package kafkascan.oracle;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a share group that acknowledges records, and what brokers report about share groups. */
final class ShareGroups {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int MAX_POLLS = 150;

    private final String bootstrapServers;

    ShareGroups(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    void addCommandsTo(Map<String, ClientDriver.Command> commands) {
        commands.put("shareConsume", this::consume);
        commands.put("shareOffsets", this::offsets);
        commands.put("shareDelete", this::delete);
    }

    /** Acknowledges a number of records, the next ones by the types of "acknowledge" in a circle. */
    private Object consume(JsonNode arguments) throws ExecutionException, InterruptedException {
        Map<String, Object> config = Arguments.clientConfig(bootstrapServers, arguments);
        config.put("share.acknowledgement.mode", "explicit");
        readFromTheBeginning(config.get("group.id").toString());
        JsonNode types = arguments.get("acknowledge");
        int wanted = arguments.get("count").asInt();
        int seen = 0;
        try (ShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments.get("topic").asText()));
            for (int poll = 0; poll < MAX_POLLS && seen < wanted; poll++) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    consumer.acknowledge(record, AcknowledgeType.valueOf(types.get(seen % types.size()).asText()));
                    seen++;
                }
                consumer.commitSync();
            }
        }
        return seen;
    }

    private void readFromTheBeginning(String group) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(
                Map.of(resource, List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    private Object offsets(JsonNode arguments) throws ExecutionException, InterruptedException {
        String group = arguments.get("group").asText();
        Map<String, Long> starts = new HashMap<>();
        try (Admin admin = admin()) {
            Map<TopicPartition, SharePartitionOffsetInfo> found =
                admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()))
                    .partitionsToOffsetInfo(group).get();
            found.forEach((partition, info) -> {
                if (info != null) {
                    starts.put(partition.toString(), info.startOffset());
                }
            });
        }
        return starts;
    }

    private Object delete(JsonNode arguments) throws ExecutionException, InterruptedException {
        try (Admin admin = admin()) {
            admin.deleteShareGroups(List.of(arguments.get("group").asText())).all().get();
        }
        return null;
    }

    private Admin admin() {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrapServers);
        return Admin.create(config);
    }
}
