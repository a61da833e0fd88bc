package kafkascan.oracle;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;

/** Prints the properties of each file as a line of JSON, or null where Java throws. */
final class LoadProperties {
    private LoadProperties() {
    }

    public static void main(String[] files) throws IOException {
        ObjectMapper json = new ObjectMapper();
        for (String file : files) {
            Properties properties = new Properties();
            Object found;
            try (InputStream stream = Files.newInputStream(Path.of(file))) {
                properties.load(stream);
                found = new TreeMap<>(properties);
            } catch (IllegalArgumentException malformedEscape) {
                found = null;
            }
            System.out.println(json.writeValueAsString(found));
        }
    }
}
