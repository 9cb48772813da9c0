import java.util.ArrayList;
import java.util.List;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.Property;

/** What parquet-java says where it goes on without a filter: it logs, and gives null. */
final class VectorWarnings extends AbstractAppender {
  private final List<String> messages = new ArrayList<>();
  private final List<Logger> loggers = new ArrayList<>(); // log4j alone would forget them

  VectorWarnings() {
    super("warnings", null, null, true, Property.EMPTY_ARRAY);
    start();
  }

  void listen(Class<?> type) {
    Configurator.setLevel(type.getName(), Level.WARN);
    Logger logger = (Logger) LogManager.getLogger(type);
    logger.addAppender(this);
    loggers.add(logger);
  }

  @Override
  public void append(LogEvent event) {
    messages.add(event.getMessage().getFormattedMessage());
  }

  void clear() {
    messages.clear();
  }

  boolean isEmpty() {
    return messages.isEmpty();
  }

  String outcome() {
    boolean unsupported = messages.stream().anyMatch(text -> text.contains("not supported"));
    return unsupported ? "unsupported" : "malformed";
  }
}
