package kafkascan.oracle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.compress.GzipCompression;
import org.apache.kafka.common.compress.Lz4Compression;
import org.apache.kafka.common.compress.ZstdCompression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

/**
 * Builds a batch step by step: its bytes, and what the builder says after each step. What it throws ends the job and is
 * part of the answer ("exception").
 */
final class BuildJob {
    private BuildJob() {
    }

    static Map<String, Object> run(JsonNode job) {
        Map<String, Object> answer = new LinkedHashMap<>();
        List<Map<String, Object>> said = new ArrayList<>();
        answer.put("steps", said);
        try {
            ByteBufferOutputStream out = new ByteBufferOutputStream(512);
            MemoryRecordsBuilder builder = builder(job, out);
            builder.setEstimatedCompressionRatio((float) job.path("ratio").asDouble(1));
            for (JsonNode step : job.get("steps")) {
                said.add(take(step, builder));
            }
            if (job.hasNonNull("lastOffset")) {
                builder.overrideLastOffset(job.get("lastOffset").asLong());
            }
            answer.put("info", info(builder));
            answer.put("bytes", RecordFields.bytes(builder.build().buffer()));
        } catch (IOException | RuntimeException thrown) {
            answer.put("exception", Rebuild.describe(thrown));
        }
        return answer;
    }

    private static MemoryRecordsBuilder builder(JsonNode job, ByteBufferOutputStream out) {
        return new MemoryRecordsBuilder(
            out, (byte) job.get("magic").asInt(), compression(job), TimestampType.forName(job.get("timestampType").asText()),
            job.get("baseOffset").asLong(), job.get("logAppendTime").asLong(), job.get("producerId").asLong(),
            (short) job.get("producerEpoch").asInt(), job.get("baseSequence").asInt(), job.get("isTransactional").asBoolean(),
            job.get("isControl").asBoolean(), job.get("partitionLeaderEpoch").asInt(), job.get("writeLimit").asInt(),
            job.get("deleteHorizonMs").asLong(-1));
    }

    private static Compression compression(JsonNode job) {
        CompressionType type = CompressionType.forName(job.get("codec").asText());
        if (!job.hasNonNull("level")) {
            return Compression.of(type).build();
        }
        int level = job.get("level").asInt();
        return switch (type) {
            case GZIP -> new GzipCompression.Builder().level(level).build();
            case LZ4 -> new Lz4Compression.Builder().level(level).build();
            case ZSTD -> new ZstdCompression.Builder().level(level).build();
            default -> throw new IllegalArgumentException(type + " has no levels");
        };
    }

    private static Map<String, Object> take(JsonNode step, MemoryRecordsBuilder builder) throws IOException {
        Map<String, Object> said = new LinkedHashMap<>();
        if (step.has("kind")) {
            control(step, builder);
        } else {
            ByteBuffer key = buffer(step.get("key"));
            ByteBuffer value = buffer(step.get("value"));
            Header[] headers = headers(step.get("headers"));
            long timestamp = step.get("timestamp").asLong();
            said.put("hasRoom", builder.hasRoomFor(timestamp, key, value, headers));
            if (step.hasNonNull("offset")) {
                builder.appendWithOffset(step.get("offset").asLong(), timestamp, key, value, headers);
            } else {
                builder.append(timestamp, key, value, headers);
            }
        }
        said.put("isFull", builder.isFull());
        said.put("estimatedSize", builder.estimatedSizeInBytes());
        said.put("uncompressedSize", builder.uncompressedBytesWritten());
        return said;
    }

    private static void control(JsonNode step, MemoryRecordsBuilder builder) {
        long timestamp = step.get("timestamp").asLong();
        JsonNode value = step.get("value");
        short version = (short) step.path("version").asInt(0);
        ControlRecordType kind = ControlRecordType.valueOf(step.get("kind").asText());
        switch (kind) {
            case ABORT, COMMIT -> builder.appendEndTxnMarker(
                timestamp, new EndTransactionMarker(kind, value.get("coordinatorEpoch").asInt()));
            case LEADER_CHANGE -> leaderChange(timestamp, LeaderChangeMessageJsonConverter.read(value, version), builder);
            case SNAPSHOT_HEADER -> builder.appendSnapshotHeaderMessage(
                timestamp, SnapshotHeaderRecordJsonConverter.read(value, version));
            case SNAPSHOT_FOOTER -> builder.appendSnapshotFooterMessage(
                timestamp, SnapshotFooterRecordJsonConverter.read(value, version));
            case KRAFT_VERSION -> builder.appendKRaftVersionMessage(
                timestamp, KRaftVersionRecordJsonConverter.read(value, version));
            case KRAFT_VOTERS -> builder.appendVotersMessage(timestamp, VotersRecordJsonConverter.read(value, version));
            default -> throw new IllegalArgumentException("no such control record");
        }
    }

    /** The builder writes version 0; a later one has to be encoded before. */
    private static void leaderChange(long timestamp, LeaderChangeMessage message, MemoryRecordsBuilder builder) {
        if (message.version() == 0) {
            builder.appendLeaderChangeMessage(timestamp, message);
        } else {
            ByteBuffer value = MessageUtil.toByteBufferAccessor(message, message.version()).buffer();
            builder.appendControlRecord(timestamp, ControlRecordType.LEADER_CHANGE, value);
        }
    }

    private static Map<String, Object> info(MemoryRecordsBuilder builder) {
        if (builder.numRecords() == 0) {
            return null;
        }
        MemoryRecordsBuilder.RecordsInfo info = builder.info();
        return Map.of("maxTimestamp", info.maxTimestamp, "shallowOffset", info.shallowOffsetOfMaxTimestamp);
    }

    private static ByteBuffer buffer(JsonNode base64) throws IOException {
        return base64 == null || base64.isNull() ? null : ByteBuffer.wrap(base64.binaryValue());
    }

    private static Header[] headers(JsonNode pairs) throws IOException {
        Header[] headers = new Header[pairs.size()];
        for (int i = 0; i < headers.length; i++) {
            JsonNode value = pairs.get(i).get(1);
            String key = new String(pairs.get(i).get(0).binaryValue(), StandardCharsets.UTF_8);
            headers[i] = new RecordHeader(key, value.isNull() ? null : value.binaryValue());
        }
        return headers;
    }
}
