package kafkascan.oracle;

import java.util.ArrayList;
import java.util.List;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configuration;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;

/** What Kafka's storage classes log: the only place where they say which segments they recover, and why. */
final class LogLines extends AbstractAppender {
    private static final String STORAGE = "org.apache.kafka.storage.internals";
    private static final List<String> LINES = new ArrayList<>();

    private LogLines() {
        super("lines", null, null, true, Property.EMPTY_ARRAY);
    }

    static void listen() {
        LogLines lines = new LogLines();
        lines.start();
        LoggerContext context = (LoggerContext) LogManager.getContext(false);
        Configuration configuration = context.getConfiguration();
        LoggerConfig storage = new LoggerConfig(STORAGE, Level.INFO, false);
        storage.addAppender(lines, Level.INFO, null);
        configuration.addLogger(STORAGE, storage);
        context.updateLoggers();
    }

    /** The lines since the last call. */
    static List<String> take() {
        synchronized (LINES) {
            List<String> taken = new ArrayList<>(LINES);
            LINES.clear();
            return taken;
        }
    }

    @Override
    public void append(LogEvent event) {
        String thrown = event.getThrown() == null ? "" : ": " + event.getThrown();
        synchronized (LINES) {
            LINES.add(event.getLevel() + " " + event.getMessage().getFormattedMessage() + thrown);
        }
    }
}
