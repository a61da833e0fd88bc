package kafkascan.oracle;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;

/** Does the same to fresh copies of a directory, for benchmarks: the first half warms the JVM up and does not count. */
final class Repeated {
    /** Does the work in a directory and gives the seconds that count. */
    @FunctionalInterface
    interface Work {
        double seconds(Path scratch) throws Exception;
    }

    private Repeated() {
    }

    static void run(Path directory, int repeat, Map<String, Object> answer, Work work) throws Exception {
        Path scratch = directory.resolveSibling("scratch").resolve(directory.getFileName());
        double[] seconds = new double[repeat];
        for (int i = 0; i < repeat; i++) {
            Directories.copy(directory, scratch);
            LogLines.take();
            seconds[i] = work.seconds(scratch);
        }
        Directories.delete(scratch.getParent());
        double[] counted = Arrays.copyOfRange(seconds, repeat / 2, repeat);
        Arrays.sort(counted);
        answer.put("medianMs", counted[counted.length / 2] * 1e3);
        answer.put("minMs", counted[0] * 1e3);
    }
}
