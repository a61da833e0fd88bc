package kafkascan.oracle;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/** Asks a broker's remote log manager whether remote segments belong to logs, by the leader epochs of both. */
final class LineageJob {
    private static final TopicIdPartition PARTITION =
        new TopicIdPartition(Uuid.randomUuid(), new TopicPartition("t", 0));

    private LineageJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Method within = method("isRemoteSegmentWithinLeaderEpochs",
            RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
        Method filtered = method("buildFilteredLeaderEpochMap", NavigableMap.class);
        List<Boolean> verdicts = new ArrayList<>();
        for (JsonNode one : arguments.get("cases")) {
            RemoteLogSegmentMetadata segment = new RemoteLogSegmentMetadata(
                RemoteLogSegmentId.generateNew(PARTITION), one.get("first").asLong(), one.get("last").asLong(),
                0, 0, 0, 100, epochs(one.get("segment")));
            Object log = filtered.invoke(null, epochs(one.get("log")));
            verdicts.add((Boolean) within.invoke(null, segment, Long.MAX_VALUE, log));
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("verdicts", verdicts);
        return answer;
    }

    private static Method method(String name, Class<?>... parameters) throws NoSuchMethodException {
        Method found = RemoteLogManager.class.getDeclaredMethod(name, parameters);
        found.setAccessible(true);
        return found;
    }

    private static NavigableMap<Integer, Long> epochs(JsonNode pairs) {
        NavigableMap<Integer, Long> found = new TreeMap<>();
        for (JsonNode pair : pairs) {
            found.put(pair.get(0).asInt(), pair.get(1).asLong());
        }
        return found;
    }
}
