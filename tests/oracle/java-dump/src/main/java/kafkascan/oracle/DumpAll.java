package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.tools.DumpLogSegments;

/**
 * Runs DumpLogSegments many times in one JVM.
 *
 * <p>Each line of standard input is one run: tab-separated, the file for the tool's standard output, the file for its
 * standard error, then the tool's arguments. A tool that dies leaves "Exception in thread ..." as the last line of its
 * standard error, as a JVM of its own would.
 */
public final class DumpAll {
    private static final int FIRST_ARGUMENT = 2;

    private DumpAll() {
    }

    public static void main(String[] args) throws IOException {
        BufferedReader runs = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = runs.readLine(); line != null; line = runs.readLine()) {
            String[] fields = line.split("\t");
            run(fields[0], fields[1], Arrays.copyOfRange(fields, FIRST_ARGUMENT, fields.length));
        }
    }

    private static void run(String stdout, String stderr, String[] arguments) throws IOException {
        PrintStream originalOut = System.out;
        PrintStream originalErr = System.err;
        try (PrintStream out = open(stdout); PrintStream err = open(stderr)) {
            System.setOut(out);
            System.setErr(err);
            dump(arguments);
        } finally {
            System.setOut(originalOut);
            System.setErr(originalErr);
        }
    }

    private static void dump(String[] arguments) {
        try {
            DumpLogSegments.main(arguments);
        } catch (Exception | Error death) { // Snappy throws its own error; a damaged count fills the memory
            System.err.println("Exception in thread \"main\" " + death);
        }
    }

    private static PrintStream open(String path) throws IOException {
        return new PrintStream(new FileOutputStream(path), false, StandardCharsets.UTF_8);
    }
}
