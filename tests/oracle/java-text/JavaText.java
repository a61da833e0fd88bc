import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

/** Prints UTF-8, given as hexadecimal digits, as Java decodes and encodes it. */
public final class JavaText {
    private JavaText() {
    }

    public static void main(String[] args) throws IOException {
        HexFormat hex = HexFormat.of();
        StringBuilder out = new StringBuilder();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String text = new String(hex.parseHex(line), StandardCharsets.UTF_8);
            out.append(hex.formatHex(text.getBytes(StandardCharsets.UTF_8))).append('\n');
        }
        new PrintStream(System.out, true, StandardCharsets.US_ASCII).print(out);
    }
}
