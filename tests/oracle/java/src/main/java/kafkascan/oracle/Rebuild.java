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
 * Rebuilds, loads and searches partition directories, and rewrites batches, with the classes that a broker does it with.
 *
 * <p>One JSON job per line of standard input, one JSON answer per line of standard output. What Kafka throws is part of
 * the answer ("exception"); only a job that cannot be understood has an "error".
 */
public final class Rebuild {
    /** One kind of job. */
    @FunctionalInterface
    interface Job {
        Map<String, Object> run(JsonNode arguments) throws Exception;
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Job> JOBS = Map.of(
        "segment", SegmentJob::run,
        "load", LoadJob::run,
        "lookup", LookupJob::run,
        "consume", ConsumeJob::run,
        "restamp", RestampJob::run,
        "filter", FilterJob::run,
        "truncate", TruncateJob::run,
        "epochs", EpochJob::run,
        "lineage", LineageJob::run,
        "verdict", VerdictJob::run);

    private Rebuild() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        LogLines.listen();
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> answer(JsonNode job) {
        LogLines.take();
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.putAll(JOBS.get(job.get("command").asText()).run(job));
        } catch (Exception failure) {
            answer.put("error", failure.toString());
        }
        answer.put("messages", LogLines.take());
        return answer;
    }

    /** A throwable as the answer shows it. */
    static Map<String, Object> describe(Throwable thrown) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("class", thrown.getClass().getName());
        described.put("message", thrown.getMessage());
        described.put("cause", thrown.getCause() == null ? null : describe(thrown.getCause()));
        return described;
    }
}
