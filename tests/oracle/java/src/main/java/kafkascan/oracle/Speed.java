package kafkascan.oracle;

import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Locale;

import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * How fast Kafka's own classes are over a mapped segment: prints seconds for a walk that reads a few header fields, and
 * for one that verifies checksums; or, with a second argument, for reading every record. Medians of the last repetitions; those before warm the JVM up.
 */
public final class Speed {
    private static final int REPETITIONS = 14;
    private static final int COUNTED = 7;

    private Speed() {
    }

    public static void main(String[] args) throws IOException {
        try (FileChannel file = FileChannel.open(Path.of(args[0]), StandardOpenOption.READ)) {
            MappedByteBuffer segment = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
            if (args.length > 1) {
                System.out.printf(Locale.ROOT, "%.9f%n", median(() -> records(segment)));
                return;
            }
            double walk = median(() -> walk(segment));
            double verify = median(() -> verify(segment));
            System.out.printf(Locale.ROOT, "%.9f %.9f%n", walk, verify);
        }
    }

    private static long walk(MappedByteBuffer segment) {
        long seen = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(segment.duplicate()).batches()) {
            seen += batch.baseOffset() + batch.lastOffset() + batch.maxTimestamp() + batch.producerId()
                + batch.sizeInBytes();
        }
        return seen;
    }

    private static long verify(MappedByteBuffer segment) {
        long seen = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(segment.duplicate()).batches()) {
            batch.ensureValid();
            seen++;
        }
        return seen;
    }

    private static long records(MappedByteBuffer segment) {
        long seen = 0;
        try (BufferSupplier buffers = BufferSupplier.create()) {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(segment.duplicate()).batches()) {
                try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                    while (records.hasNext()) {
                        Record record = records.next();
                        seen += record.offset() + record.timestamp() + record.keySize() + record.valueSize();
                    }
                }
            }
        }
        return seen;
    }

    private static double median(java.util.function.LongSupplier work) {
        double[] seconds = new double[REPETITIONS];
        long seen = 0;
        for (int i = 0; i < REPETITIONS; i++) {
            long start = System.nanoTime();
            seen += work.getAsLong();
            seconds[i] = (System.nanoTime() - start) / 1e9;
        }
        if (seen == 0) {
            throw new IllegalStateException("nothing was read");
        }
        double[] counted = Arrays.copyOfRange(seconds, REPETITIONS - COUNTED, REPETITIONS);
        Arrays.sort(counted);
        return counted[COUNTED / 2];
    }
}
