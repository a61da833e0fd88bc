package kafkascan.oracle;

import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** A job's directory with what Kafka's storage classes need beside it: configuration, clock, scheduler. */
final class Storage implements AutoCloseable {
    private static final int NEVER_MS = Integer.MAX_VALUE;
    private static final int MAX_TRANSACTION_MS = 900_000;

    final File directory;
    final TopicPartition partition;
    final LogConfig config;
    final Time time;
    final KafkaScheduler scheduler = new KafkaScheduler(1);
    final LogDirFailureChannel failures = new LogDirFailureChannel(1);

    private final JsonNode arguments;

    Storage(File directory, JsonNode arguments) throws IOException {
        this.directory = directory;
        this.arguments = arguments;
        this.partition = UnifiedLog.parseTopicPartitionName(directory);
        this.config = config(arguments);
        this.time = arguments.path("now").isNumber() ? new StoppedClock(arguments.get("now").asLong()) : Time.SYSTEM;
        scheduler.startup();
    }

    /** As a broker creates it, with the directory's name for the partition's. */
    ProducerStateManager producerStateManager() throws IOException {
        return new ProducerStateManager(partition, directory, MAX_TRANSACTION_MS, producerStateManagerConfig(), time);
    }

    UnifiedLog load() throws IOException {
        return UnifiedLog.create(
            directory, config, logStartOffset(), arguments.path("recoveryPoint").asLong(0), scheduler,
            new BrokerTopicStats(), time, MAX_TRANSACTION_MS, producerStateManagerConfig(), NEVER_MS, failures,
            arguments.path("cleanShutdown").asBoolean(false), Optional.empty(), new ConcurrentHashMap<>(), isTiered(),
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    long logStartOffset() {
        return arguments.path("logStartOffset").asLong(0);
    }

    private boolean isTiered() {
        return arguments.path("isTiered").asBoolean(false);
    }

    /** Waits for what was scheduled for now: files are deleted and checkpoints written in the background. */
    void settle() throws InterruptedException {
        for (int i = 0; i < 2; i++) {
            CountDownLatch reached = new CountDownLatch(1);
            scheduler.scheduleOnce("reached", reached::countDown);
            reached.await();
        }
    }

    @Override
    public void close() throws InterruptedException {
        scheduler.shutdown();
    }

    private ProducerStateManagerConfig producerStateManagerConfig() {
        return new ProducerStateManagerConfig(arguments.path("producerIdExpirationMs").asInt(86_400_000), false);
    }

    private static LogConfig config(JsonNode arguments) {
        Map<String, Object> config = new HashMap<>(Map.of(
            TopicConfig.INDEX_INTERVAL_BYTES_CONFIG, arguments.path("intervalBytes").asInt(4096),
            TopicConfig.SEGMENT_INDEX_BYTES_CONFIG, arguments.path("maxIndexBytes").asInt(10 << 20),
            // The public one is not allowed to be as small as a test's segments.
            LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG, arguments.path("segmentBytes").asInt(1 << 30),
            TopicConfig.SEGMENT_MS_CONFIG, arguments.path("segmentMs").asLong(Long.MAX_VALUE),
            TopicConfig.FILE_DELETE_DELAY_MS_CONFIG, arguments.path("deleteDelayMs").asLong(0),
            TopicConfig.PREALLOCATE_CONFIG, arguments.path("preallocate").asBoolean(false),
            TopicConfig.RETENTION_MS_CONFIG, -1,
            TopicConfig.REMOTE_LOG_STORAGE_ENABLE_CONFIG, arguments.path("isTiered").asBoolean(false)));
        config.putAll(Arguments.config(arguments));
        return new LogConfig(config);
    }

    /** What decides which producers of a snapshot are too old. */
    private record StoppedClock(long milliseconds) implements Time {
        @Override
        public long nanoseconds() {
            return Time.SYSTEM.nanoseconds();
        }

        @Override
        public void sleep(long ms) {
            Time.SYSTEM.sleep(ms);
        }
    }
}
