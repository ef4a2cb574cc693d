import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints Kafka's error table; kafka-errors.tsv next to this file is its output for 4.3.1:
 *
 *     java -cp kafka-clients-4.3.1.jar:slf4j-api-1.7.36.jar ListErrors.java > kafka-errors.tsv
 *
 * Columns: code, name, whether it is retriable, whether it makes metadata stale.
 */
public class ListErrors {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            Object exception = error.exception();
            System.out.println(error.code() + "\t" + error.name()
                + "\t" + (exception instanceof RetriableException)
                + "\t" + (exception instanceof InvalidMetadataException));
        }
    }
}
