package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Builds batches, reads batches and appends batches to logs, with the classes that clients and brokers do it with.
 *
 * <p>One JSON job per line of standard input, one JSON answer per line of standard output, as of {@link Rebuild}.
 */
public final class Building {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Rebuild.Job> JOBS = Map.of(
        "build", BuildJob::run,
        "read", ReadJob::run,
        "append", AppendJob::run);

    private Building() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(JsonNode job) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.putAll(JOBS.get(job.get("command").asText()).run(job));
        } catch (Exception failure) {
            answer.put("error", failure.toString());
        }
        return answer;
    }
}
