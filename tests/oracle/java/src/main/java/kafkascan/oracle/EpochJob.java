package kafkascan.oracle;

import java.io.File;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;

/** Asks the leader epochs of a directory's checkpoint for the ends of epochs, as a leader and a follower do. */
final class EpochJob {
    private EpochJob() {
    }

    static Map<String, Object> run(JsonNode arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        File directory = new File(arguments.get("directory").asText());
        try (Storage storage = new Storage(directory, arguments)) {
            LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(
                LeaderEpochCheckpointFile.newFile(directory), storage.failures);
            LeaderEpochFileCache cache = new LeaderEpochFileCache(storage.partition, file, storage.scheduler);
            List<List<Long>> ends = new ArrayList<>();
            for (JsonNode epoch : arguments.get("epochs")) {
                Map.Entry<Integer, Long> end = cache.endOffsetFor(epoch.asInt(), arguments.get("logEnd").asLong());
                ends.add(List.of((long) end.getKey(), end.getValue()));
            }
            answer.put("ends", ends);
        }
        return answer;
    }
}
