package kafkascan.oracle;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.TreeMap;
import java.util.Map;
import java.util.stream.Stream;

/** Copies, deletes and lists partition directories. */
final class Directories {
    private Directories() {
    }

    /** Makes one directory like another; large logs are only copied again when their size differs. */
    static void copy(Path source, Path target) throws IOException {
        Files.createDirectories(target);
        for (Path file : files(target)) {
            Path original = source.resolve(file.getFileName());
            boolean isUnchangedLog = file.toString().endsWith(".log")
                && Files.exists(original) && Files.size(original) == Files.size(file);
            if (!isUnchangedLog) {
                Files.delete(file);
            }
        }
        for (Path file : files(source)) {
            Path copy = target.resolve(file.getFileName());
            if (!Files.exists(copy)) {
                if (file.toString().endsWith("index")) {
                    copySparsely(file, copy);
                } else {
                    Files.copy(file, copy, StandardCopyOption.COPY_ATTRIBUTES);
                }
            }
        }
    }

    /** Leaves the zeros at the end out, of which a preallocated index has ten megabytes. */
    private static void copySparsely(Path source, Path target) throws IOException {
        byte[] content = Files.readAllBytes(source);
        int end = content.length;
        while (end > 0 && content[end - 1] == 0) {
            end--;
        }
        try (RandomAccessFile file = new RandomAccessFile(target.toFile(), "rw")) {
            file.write(content, 0, end);
            file.setLength(content.length);
        }
        Files.setLastModifiedTime(target, Files.getLastModifiedTime(source));
    }

    static void delete(Path directory) throws IOException {
        if (Files.isDirectory(directory)) {
            try (Stream<Path> entries = Files.list(directory)) {
                for (Path entry : entries.toList()) {
                    delete(entry);
                }
            }
        }
        Files.deleteIfExists(directory);
    }

    static Map<String, Long> sizes(Path directory) throws IOException {
        Map<String, Long> sizes = new TreeMap<>();
        for (Path file : files(directory)) {
            sizes.put(file.getFileName().toString(), Files.size(file));
        }
        return sizes;
    }

    private static List<Path> files(Path directory) throws IOException {
        try (Stream<Path> entries = Files.list(directory)) {
            return entries.filter(Files::isRegularFile).sorted().toList();
        }
    }
}
