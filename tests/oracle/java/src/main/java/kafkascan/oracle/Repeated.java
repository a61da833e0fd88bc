package kafkascan.oracle;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Does the same to fresh copies of a directory, for benchmarks: the first half warms the JVM up and does not count.
 *
 * <p>With "keep" the copies stay until somebody removes them: file systems are slow at making files where some were just
 * deleted.
 */
final class Repeated {
    /** Does the work in a directory and gives the seconds that count. */
    @FunctionalInterface
    interface Work {
        double seconds(Path scratch) throws Exception;
    }

    private Repeated() {
    }

    static void run(JsonNode arguments, Map<String, Object> answer, Work work) throws Exception {
        Path directory = Path.of(arguments.get("directory").asText());
        int repeat = arguments.get("repeat").asInt();
        boolean keep = arguments.path("keep").asBoolean();
        Path copies = directory.resolveSibling("scratch");
        double[] seconds = new double[repeat];
        for (int i = 0; i < repeat; i++) {
            Path scratch = copies.resolve(Integer.toString(keep ? i : 0)).resolve(directory.getFileName());
            Directories.copy(directory, scratch);
            LogLines.take();
            seconds[i] = work.seconds(scratch);
        }
        if (!keep) {
            Directories.delete(copies);
        }
        double[] counted = Arrays.copyOfRange(seconds, repeat / 2, repeat);
        Arrays.sort(counted);
        answer.put("medianMs", counted[counted.length / 2] * 1e3);
        answer.put("minMs", counted[0] * 1e3);
    }
}
