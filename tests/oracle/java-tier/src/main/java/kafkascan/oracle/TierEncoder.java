package kafkascan.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.github.luben.zstd.Zstd;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.bouncycastle.jce.provider.BouncyCastleProvider;

/**
 * Stores segments as Aiven's plugin does: chunks, zstd, AES-GCM, RSA-OAEP with SHA3-512, manifests.
 *
 * <p>Arguments: the file for the new private key. Standard input: one JSON object per segment.
 */
public final class TierEncoder {
    private static final String KEY_ID = "oracle-key";
    private static final int TAG_BITS = 128;
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final ObjectMapper JSON = new ObjectMapper();
    // By the fields of the manifest; this is also the order in the object.
    private static final List<String> PARTS =
        List.of("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction");

    private final KeyPair pair;

    private TierEncoder(KeyPair pair) {
        this.pair = pair;
    }

    public static void main(String[] args) throws IOException, GeneralSecurityException {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        KeyPair pair = generator.generateKeyPair();
        String pem = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(pair.getPrivate().getEncoded());
        Files.writeString(Path.of(args[0]), "-----BEGIN PRIVATE KEY-----\n" + pem + "\n-----END PRIVATE KEY-----\n");
        TierEncoder encoder = new TierEncoder(pair);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            encoder.store(JSON.readTree(line));
        }
    }

    private void store(JsonNode job) throws IOException, GeneralSecurityException {
        boolean isCompressed = job.get("compressed").booleanValue();
        SegmentKey key = job.get("encrypted").booleanValue() ? new SegmentKey() : null;
        byte[] log = Files.readAllBytes(Path.of(job.get("log").textValue()));
        int chunkSize = job.get("chunkSize").intValue();
        List<byte[]> stored = new ArrayList<>();
        for (int start = 0; start < log.length; start += chunkSize) {
            byte[] chunk = Arrays.copyOfRange(log, start, (int) Math.min(log.length, (long) start + chunkSize));
            byte[] compressed = isCompressed ? Zstd.compress(chunk) : chunk;
            stored.add(key == null ? compressed : key.encrypt(compressed));
        }
        ObjectNode manifest = JSON.createObjectNode();
        manifest.put("version", "1");
        ObjectNode chunkIndex = manifest.putObject("chunkIndex");
        chunkIndex.put("type", job.get("chunkIndex").textValue());
        chunkIndex.put("originalChunkSize", chunkSize);
        chunkIndex.put("originalFileSize", log.length);
        int[] sizes = stored.stream().mapToInt(chunk -> chunk.length).toArray();
        if (job.get("chunkIndex").textValue().equals("fixed")) {
            putFixedSizes(chunkIndex, sizes);
        } else {
            byte[] encoded = Zstd.compress(encodeSizes(sizes));
            chunkIndex.put("transformedChunks", Base64.getEncoder().encodeToString(encoded));
        }
        byte[] indexes = putIndexes(manifest.putObject("segmentIndexes"), job.get("parts"), key);
        manifest.put("compression", isCompressed);
        if (key != null) {
            ObjectNode encryption = manifest.putObject("encryption");
            encryption.put("dataKey", KEY_ID + ":" + Base64.getEncoder().encodeToString(wrap(key.dataKey)));
            encryption.put("aad", Base64.getEncoder().encodeToString(key.aad));
        }
        String id = uuid();
        putMetadata(manifest.putObject("remoteLogSegmentMetadata"), job, id);
        String name = String.format("%s%s-%s/%d/%020d-%s", job.get("prefix").textValue(), job.get("topic").textValue(),
            job.get("topicId").textValue(), job.get("partition").intValue(), job.get("startOffset").longValue(), id);
        Path root = Path.of(job.get("root").textValue());
        Files.createDirectories(root.resolve(name).getParent());
        Files.write(root.resolve(name + ".log"), concatenated(stored));
        Files.write(root.resolve(name + ".indexes"), indexes);
        Files.write(root.resolve(name + ".rsm-manifest"), JSON.writeValueAsBytes(manifest));
    }

    private static void putFixedSizes(ObjectNode index, int[] sizes) {
        int usual = sizes.length == 0 ? 0 : sizes[0];
        for (int chunk = 0; chunk + 1 < sizes.length; chunk++) {
            if (sizes[chunk] != usual) {
                throw new IllegalArgumentException("a fixed index cannot say " + Arrays.toString(sizes));
            }
        }
        index.put("transformedChunkSize", usual);
        index.put("finalTransformedChunkSize", sizes.length == 0 ? 0 : sizes[sizes.length - 1]);
    }

    private static byte[] encodeSizes(int[] sizes) {
        ByteBuffer out = ByteBuffer.allocate(13 + 4 * sizes.length).putInt(sizes.length);
        if (sizes.length > 0) {
            int[] head = Arrays.copyOf(sizes, sizes.length - 1);
            if (head.length > 0) {
                int base = Arrays.stream(head).min().getAsInt();
                int largest = Arrays.stream(head).max().getAsInt() - base;
                int width = 1;
                while (width < 4 && largest >> 8 * width != 0) {
                    width++;
                }
                out.putInt(base).put((byte) width);
                for (int size : head) {
                    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
                        out.put((byte) (size - base >> shift));
                    }
                }
            }
            out.putInt(sizes[sizes.length - 1]);
        }
        return Arrays.copyOf(out.array(), out.position());
    }

    private static byte[] putIndexes(ObjectNode fields, JsonNode parts, SegmentKey key)
        throws IOException, GeneralSecurityException {
        ByteArrayOutputStream object = new ByteArrayOutputStream();
        for (String part : PARTS) {
            if (!parts.has(part)) {
                fields.putNull(part);
                continue;
            }
            byte[] data = Files.readAllBytes(Path.of(parts.get(part).textValue()));
            byte[] stored = key == null || data.length == 0 ? data : key.encrypt(data);
            fields.putObject(part).put("position", object.size()).put("size", stored.length);
            object.write(stored);
        }
        return object.toByteArray();
    }

    private static void putMetadata(ObjectNode metadata, JsonNode job, String id) {
        ObjectNode segment = metadata.putObject("remoteLogSegmentId");
        ObjectNode partition = segment.putObject("topicIdPartition");
        partition.put("topicId", job.get("topicId").textValue());
        partition.putObject("topicPartition")
            .put("topic", job.get("topic").textValue()).put("partition", job.get("partition").intValue());
        segment.put("id", id);
        metadata.put("startOffset", job.get("startOffset").longValue());
        metadata.put("endOffset", job.get("endOffset").longValue());
        metadata.put("maxTimestampMs", 1_700_000_000_000L).put("brokerId", 1).put("eventTimestampMs", 1_700_000_000_001L);
        Map<String, Long> epochs = new TreeMap<>(Map.of("0", job.get("startOffset").longValue()));
        metadata.set("segmentLeaderEpochs", JSON.valueToTree(epochs));
    }

    private byte[] wrap(byte[] dataKey) throws GeneralSecurityException {
        Cipher rsa = Cipher.getInstance("RSA/NONE/OAEPWithSHA3-512AndMGF1Padding", new BouncyCastleProvider());
        rsa.init(Cipher.ENCRYPT_MODE, pair.getPublic());
        return rsa.doFinal(dataKey);
    }

    private static String uuid() {
        return Base64.getUrlEncoder().withoutPadding().encodeToString(randomBytes(16));
    }

    private static byte[] randomBytes(int count) {
        byte[] bytes = new byte[count];
        RANDOM.nextBytes(bytes);
        return bytes;
    }

    private static byte[] concatenated(List<byte[]> chunks) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        chunks.forEach(all::writeBytes);
        return all.toByteArray();
    }

    /** The data key of one segment, for its chunks and indexes. */
    private static final class SegmentKey {
        private final byte[] dataKey = randomBytes(32);
        private final byte[] aad = randomBytes(32);

        private byte[] encrypt(byte[] plain) throws GeneralSecurityException {
            Cipher aes = Cipher.getInstance("AES/GCM/NoPadding");
            // The JDK chooses a new vector of 12 bytes.
            aes.init(Cipher.ENCRYPT_MODE, new SecretKeySpec(dataKey, "AES"), RANDOM);
            if (aes.getParameters().getParameterSpec(GCMParameterSpec.class).getTLen() != TAG_BITS) {
                throw new GeneralSecurityException("the tag does not have " + TAG_BITS + " bits");
            }
            aes.updateAAD(aad);
            byte[] cipherText = aes.doFinal(plain);
            return ByteBuffer.allocate(aes.getIV().length + cipherText.length)
                .put(aes.getIV()).put(cipherText).array();
        }
    }
}
