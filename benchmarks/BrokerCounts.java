import com.sun.tools.attach.VirtualMachine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * What running Kafka brokers have counted of produce requests, in all: {@code java BrokerCounts.java PID...}.
 *
 * <p>For each line of standard input, a topic's name, it prints a line: produce requests of all topics, their bytes, of
 * the topic the batches, records and bytes, and the fetch requests of replicas. It attaches to each broker's JVM, so a
 * broker needs no setting for it.
 */
final class BrokerCounts {
    private BrokerCounts() {}

    private static MBeanServerConnection connect(String pid) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(pid);
        try {
            String address = machine.startLocalManagementAgent();
            return JMXConnectorFactory.connect(new JMXServiceURL(address)).getMBeanServerConnection();
        } finally {
            machine.detach();
        }
    }

    /** The sum of an attribute over all beans that the pattern matches; each times its mean, if that is asked for. */
    private static double sum(MBeanServerConnection broker, String pattern, boolean timesMean) throws Exception {
        double sum = 0;
        for (ObjectName name : broker.queryNames(new ObjectName(pattern), null)) {
            double count = ((Number) broker.getAttribute(name, "Count")).doubleValue();
            sum += timesMean ? count * ((Number) broker.getAttribute(name, "Mean")).doubleValue() : count;
        }
        return sum;
    }

    public static void main(String[] pids) throws Exception {
        List<MBeanServerConnection> brokers = new ArrayList<>();
        for (String pid : pids) {
            brokers.add(connect(pid));
        }
        BufferedReader topics = new BufferedReader(new InputStreamReader(System.in));
        for (String topic = topics.readLine(); topic != null; topic = topics.readLine()) {
            double requests = 0;
            double requestBytes = 0;
            double batches = 0;
            double records = 0;
            double bytes = 0;
            double fetches = 0;
            for (MBeanServerConnection broker : brokers) {
                String request = "kafka.network:type=RequestMetrics,request=Produce,name=";
                requests += sum(broker, request + "RequestsPerSec,*", false);
                requestBytes += sum(broker, request + "RequestBytes", true);
                fetches += sum(broker, "kafka.network:type=RequestMetrics,request=FetchFollower,name=RequestsPerSec,*", false);
                String of = "kafka.server:type=BrokerTopicMetrics,topic=" + topic + ",name=";
                batches += sum(broker, of + "TotalProduceRequestsPerSec", false);
                records += sum(broker, of + "MessagesInPerSec", false);
                bytes += sum(broker, of + "BytesInPerSec", false);
            }
            System.out.println(
                    String.format(
                            Locale.ROOT,
                            "%.0f %.0f %.0f %.0f %.0f %.0f",
                            requests,
                            requestBytes,
                            batches,
                            records,
                            bytes,
                            fetches));
        }
    }
}
