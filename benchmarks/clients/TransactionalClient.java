import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactions of one size, one after the other, by Kafka's Java producer; for benchmarks/transactions.py:
 *
 *     java -cp 'libs/*' TransactionalClient.java SERVERS SIZE RECORD_BYTES
 *
 * Each line "TOPIC SECONDS" of standard input is one run; it prints a line "TRANSACTIONS SECONDS". One JVM does all
 * runs of a size, so its compiler has finished before the last run.
 */
public class TransactionalClient {
    public static void main(String[] args) throws Exception {
        int size = Integer.parseInt(args[1]);
        byte[] value = new byte[Integer.parseInt(args[2])];
        var lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] run = line.split(" ");
            Properties settings = new Properties();
            settings.put("bootstrap.servers", args[0]);
            settings.put("transactional.id", run[0]);
            settings.put("linger.ms", "0");
            settings.put("batch.size", "65536");
            try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                producer.initTransactions();
                long began = System.nanoTime(), until = began + (long) (Double.parseDouble(run[1]) * 1e9);
                long done = 0;
                while (System.nanoTime() < until) {
                    producer.beginTransaction();
                    for (int number = 0; number < size; number++) {
                        producer.send(new ProducerRecord<>(run[0], value));
                    }
                    producer.commitTransaction();
                    done++;
                }
                System.out.println(done + " " + (System.nanoTime() - began) / 1e9);
            }
        }
    }
}
