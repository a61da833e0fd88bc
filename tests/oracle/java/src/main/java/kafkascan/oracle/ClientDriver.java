package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Kafka's Java clients behind a pipe: one JSON command per line of standard input, one JSON reply per line of standard
 * output. The scenarios are written in Python; this program only runs commands.
 *
 * <p>The end of standard input halts the JVM without closing anything, so that a transaction can be left open.
 */
public final class ClientDriver {
    /** One command: takes its arguments, gives its reply. */
    @FunctionalInterface
    interface Command {
        Object run(JsonNode arguments) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, Command> commands = new HashMap<>();

    private ClientDriver(String bootstrapServers) {
        new Topics(bootstrapServers).addCommandsTo(commands);
        new Producers(bootstrapServers).addCommandsTo(commands);
        new Groups(bootstrapServers).addCommandsTo(commands);
        new ShareGroups(bootstrapServers).addCommandsTo(commands);
        new Cluster(bootstrapServers).addCommandsTo(commands);
    }

    public static void main(String[] args) throws IOException {
        PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        new ClientDriver(args[0]).serve(replies);
        Runtime.getRuntime().halt(0);
    }

    private void serve(PrintStream replies) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            replies.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private Map<String, Object> answer(JsonNode request) {
        Map<String, Object> reply = new HashMap<>();
        try {
            reply.put("result", commands.get(request.get("command").asText()).run(request));
        } catch (Exception failure) {
            reply.put("error", failure.toString());
        }
        return reply;
    }
}
