package kafkascan.oracle;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/** Creates and reconfigures topics, and changes the defaults of all brokers. */
final class Topics {
    private final String bootstrapServers;

    Topics(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    void addCommandsTo(Map<String, ClientDriver.Command> commands) {
        commands.put("createTopic", this::create);
        commands.put("alterTopic", arguments ->
            alter(ConfigResource.Type.TOPIC, arguments.get("topic").asText(), arguments));
        commands.put("alterBrokers", arguments -> alter(ConfigResource.Type.BROKER, "", arguments));
    }

    private Object create(JsonNode arguments) throws Exception {
        NewTopic topic = new NewTopic(arguments.get("topic").asText(), arguments.get("partitions").asInt(), (short) 1)
            .configs(Arguments.config(arguments));
        try (Admin admin = admin()) {
            admin.createTopics(List.of(topic)).all().get();
        }
        return null;
    }

    private Object alter(ConfigResource.Type type, String name, JsonNode arguments) throws Exception {
        ConfigResource resource = new ConfigResource(type, name);
        Collection<AlterConfigOp> changes = new ArrayList<>();
        Arguments.config(arguments).forEach((key, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        }
        return null;
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrapServers));
    }
}
