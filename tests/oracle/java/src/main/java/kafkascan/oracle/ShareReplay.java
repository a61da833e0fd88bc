package kafkascan.oracle;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.share.ShareCoordinatorConfig;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorShard;
import org.apache.kafka.coordinator.share.ShareGroupOffset;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotKey;
import org.apache.kafka.coordinator.share.generated.ShareUpdateKey;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;
import org.apache.kafka.server.share.SharePartitionKey;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Replays records of __share_group_state as a share coordinator does.
 *
 * <p>Each line of the input has the key and the value of a record in hexadecimal digits; a tombstone has a minus. A line
 * with a question mark is answered with a line per partition of a group, and an empty line; a line with an exclamation
 * mark begins an empty log.
 */
final class ShareReplay {
    private ShareReplay() {
    }

    public static void main(String[] arguments) throws IOException, ReflectiveOperationException {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ShareCoordinatorShard shard = shard();
        Map<String, SharePartitionKey> keys = new TreeMap<>();
        long offset = 0;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("!")) {
                shard = shard();
                keys.clear();
            } else if (line.equals("?")) {
                for (SharePartitionKey key : keys.values()) {
                    ShareGroupOffset state = state(shard, key);
                    if (state != null) {
                        output.println(described(key, state));
                    }
                }
                output.println();
            } else {
                CoordinatorRecord record = record(line.split(" "));
                SharePartitionKey key = key(record);
                keys.put(key.toString(), key);
                shard.replay(offset++, -1, (short) -1, record);
            }
        }
        output.flush();
    }

    private static ShareCoordinatorShard shard() {
        ShareCoordinatorConfig config =
            new ShareCoordinatorConfig(new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF, Map.of()));
        ShareCoordinatorShard.Builder builder = new ShareCoordinatorShard.Builder(config);
        builder.withLogContext(new LogContext());
        builder.withSnapshotRegistry(new SnapshotRegistry(new LogContext()));
        builder.withCoordinatorMetrics(new ShareCoordinatorMetrics());
        builder.withTopicPartition(new TopicPartition("__share_group_state", 0));
        builder.withTime(Time.SYSTEM);
        return builder.build();
    }

    private static CoordinatorRecord record(String[] parts) {
        ByteBuffer key = ByteBuffer.wrap(HexFormat.of().parseHex(parts[0]));
        ByteBuffer value = parts[1].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(parts[1]));
        return new ShareCoordinatorRecordSerde().deserialize(key, value);
    }

    private static SharePartitionKey key(CoordinatorRecord record) {
        if (record.key() instanceof ShareSnapshotKey key) {
            return SharePartitionKey.getInstance(key.groupId(), key.topicId(), key.partition());
        }
        ShareUpdateKey key = (ShareUpdateKey) record.key();
        return SharePartitionKey.getInstance(key.groupId(), key.topicId(), key.partition());
    }

    private static ShareGroupOffset state(ShareCoordinatorShard shard, SharePartitionKey key)
            throws ReflectiveOperationException {
        Method known = ShareCoordinatorShard.class.getDeclaredMethod("getShareStateMapValue", SharePartitionKey.class);
        known.setAccessible(true);
        return (ShareGroupOffset) known.invoke(shard, key);
    }

    private static String described(SharePartitionKey key, ShareGroupOffset state) {
        String batches = state.stateBatches().stream()
            .map(one -> one.firstOffset() + ":" + one.lastOffset() + ":" + one.deliveryState() + ":" + one.deliveryCount())
            .collect(Collectors.joining(","));
        return String.join("\t", key.groupId(), key.topicId().toString(), "" + key.partition(), "" + state.startOffset(),
            "" + state.stateEpoch(), "" + state.leaderEpoch(), "" + state.snapshotEpoch(),
            "" + state.deliveryCompleteCount(), "" + state.createTimestamp(), "" + state.writeTimestamp(), batches);
    }
}
