package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Kafka's generated classes.
 *
 * <p>Each line of the input has the name of a class, a version, and bytes in hexadecimal digits. The answer has the JSON
 * that Kafka's converter prints, the bytes that Kafka writes for it, and the number of bytes that it left; or an
 * exclamation mark and the exception.
 */
final class Messages {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.transaction.generated",
        "org.apache.kafka.coordinator.share.generated",
        "org.apache.kafka.server.log.remote.metadata.storage.generated");

    private Messages() {
    }

    public static void main(String[] arguments) throws IOException, ReflectiveOperationException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", 3);
            output.println(answer(messageClass(parts[0]), Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
        }
        output.flush();
    }

    private static String answer(Class<?> type, short version, byte[] bytes) throws ReflectiveOperationException {
        Message message = (Message) type.getConstructor().newInstance();
        ByteBuffer data = ByteBuffer.wrap(bytes);
        try {
            message.read(new ByteBufferAccessor(data), version);
        } catch (RuntimeException refused) {
            return "! " + refused;
        }
        return json(type, message, version) + "\t" + HexFormat.of().formatHex(written(message, version)) + "\t" + data.remaining();
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return buffer.array();
    }

    private static String json(Class<?> type, Message message, short version) throws ReflectiveOperationException {
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        try {
            return converter.getMethod("write", type, short.class).invoke(null, message, version).toString();
        } catch (InvocationTargetException failed) {
            return "! " + failed.getCause();
        }
    }

    private static Class<?> messageClass(String name) throws ClassNotFoundException {
        for (String one : PACKAGES) {
            try {
                return Class.forName(one + "." + name);
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }
}
