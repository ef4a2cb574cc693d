import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A plugin of a broker that writes what clients push to it (KIP-714) to the file -Dtelemetry.file, a line a push. */
public class TelemetryToFile implements MetricsReporter, ClientTelemetry {
    private final Path file = Path.of(System.getProperty("telemetry.file"));

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            ByteBuffer data = payload.data();
            byte[] bytes = new byte[data.remaining()];
            data.get(bytes);
            String line = String.join(" ", context.clientId(), payload.clientInstanceId().toString(),
                    Boolean.toString(payload.isTerminating()), payload.contentType(), HexFormat.of().formatHex(bytes));
            synchronized (this) {
                try {
                    Files.writeString(file, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        };
    }

    @Override public void configure(Map<String, ?> configs) { }
    @Override public void init(List<KafkaMetric> metrics) { }
    @Override public void metricChange(KafkaMetric metric) { }
    @Override public void metricRemoval(KafkaMetric metric) { }
    @Override public void close() { }
}
