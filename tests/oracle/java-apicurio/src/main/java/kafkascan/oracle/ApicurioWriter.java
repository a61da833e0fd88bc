package kafkascan.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import io.apicurio.registry.resolver.config.SchemaResolverConfig;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.vertx.core.Vertx;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Writes values with Apicurio's serializers.
 *
 * <p>Each line of the input is a JSON object: the kind of schema, a topic, the settings of the serializer, what the
 * values are of, and the values; bytes are hex. Each line of the output is the list of what was written: bytes and
 * headers.
 */
public final class ApicurioWriter {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** One for all serializers; each would have threads of its own. */
    private static final Vertx CLIENTS = Vertx.vertx();

    private static final HexFormat HEX = HexFormat.of();

    private ApicurioWriter() {}

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(JSON.writeValueAsString(write(JSON.readTree(line))));
        }
        System.out.flush();
        System.exit(0); // the client's threads do not end
    }

    private static List<Map<String, Object>> write(JsonNode job) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(SchemaResolverConfig.VERTX_INSTANCE, CLIENTS));
        job.get("settings").fields().forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
        return switch (job.get("kind").asText()) {
            case "AVRO" -> serialize(new AvroKafkaSerializer<Object>(), settings, job, avroValues(job));
            case "PROTOBUF" -> serialize(new ProtobufKafkaSerializer<DynamicMessage>(), settings, job, messages(job));
            default -> serialize(new JsonSchemaKafkaSerializer<Object>(), settings, job, jsonValues(job));
        };
    }

    private static <T> List<Map<String, Object>> serialize(
            Serializer<T> serializer, Map<String, Object> settings, JsonNode job, List<T> values) {
        List<Map<String, Object>> written = new ArrayList<>();
        try (serializer) {
            serializer.configure(settings, false);
            for (T value : values) {
                Headers headers = new RecordHeaders();
                byte[] bytes = serializer.serialize(job.get("topic").asText(), headers, value);
                List<List<String>> found = new ArrayList<>();
                for (Header header : headers) {
                    found.add(List.of(header.key(), HEX.formatHex(header.value())));
                }
                written.add(Map.of("value", HEX.formatHex(bytes), "headers", found));
            }
        }
        return written;
    }

    private static List<Object> avroValues(JsonNode job) throws Exception {
        var parser = new Schema.Parser();
        Schema schema = null;
        for (JsonNode text : job.get("schemas")) {
            schema = parser.parse(text.asText());
        }
        List<Object> values = new ArrayList<>();
        for (JsonNode value : job.get("values")) {
            var decoder = DecoderFactory.get().binaryDecoder(HEX.parseHex(value.asText()), null);
            values.add(new GenericDatumReader<Object>(schema).read(null, decoder));
        }
        return values;
    }

    private static List<DynamicMessage> messages(JsonNode job) throws Exception {
        Map<String, FileDescriptor> files = new HashMap<>();
        FileDescriptor last = null;
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(HEX.parseHex(job.get("files").asText())).getFileList()) {
            FileDescriptor[] imports = file.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
            last = FileDescriptor.buildFrom(file, imports);
            files.put(file.getName(), last);
        }
        Descriptor descriptor = last.findMessageTypeByName(job.get("message").asText());
        List<DynamicMessage> values = new ArrayList<>();
        for (JsonNode value : job.get("values")) {
            values.add(DynamicMessage.parseFrom(descriptor, HEX.parseHex(value.asText())));
        }
        return values;
    }

    private static List<Object> jsonValues(JsonNode job) {
        List<Object> values = new ArrayList<>();
        job.get("values").forEach(values::add);
        return values;
    }
}
