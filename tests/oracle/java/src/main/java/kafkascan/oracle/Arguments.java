package kafkascan.oracle;

import java.util.HashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

/** Reads what several commands have in common from their arguments. */
final class Arguments {
    private Arguments() {
    }

    /** The string map called "config"; empty when the command has none. */
    static Map<String, String> config(JsonNode arguments) {
        Map<String, String> config = new HashMap<>();
        arguments.path("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return config;
    }

    /** The string map called "config" as client properties. */
    static Map<String, Object> clientConfig(String bootstrapServers, JsonNode arguments) {
        Map<String, Object> config = new HashMap<>(config(arguments));
        config.put("bootstrap.servers", bootstrapServers);
        return config;
    }
}
