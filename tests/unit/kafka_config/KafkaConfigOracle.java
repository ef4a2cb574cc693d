// Prints what Kafka's own Java producer makes of a configuration. Its output is checked in next to it as
// keys.tsv, scenarios.tsv and properties.json; the tests test_config*.py compare aioproduce with it.
// To print them again (Java 17; the class path needs kafka-clients 4.3 and slf4j-api):
//   java -cp "$CP" KafkaConfigOracle.java keys > keys.tsv
//   cut -f1 scenarios.tsv > /tmp/given && java -cp "$CP" KafkaConfigOracle.java scenarios < /tmp/given > scenarios.tsv
//   java -cp "$CP" KafkaConfigOracle.java properties < nasty.properties > properties.json

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

public class KafkaConfigOracle {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "keys": keys(); break;
            case "scenarios": scenarios(); break;
            case "properties": properties(); break;
            default: throw new IllegalArgumentException(args[0]);
        }
    }

    static void keys() {
        for (ConfigDef.ConfigKey key : new TreeMap<>(ProducerConfig.configDef().configKeys()).values()) {
            String value = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? "<required>"
                : key.defaultValue == null ? "<null>" : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(key.name + "\t" + key.type + "\t" + value + "\t"
                + (key.validator == null ? "" : key.validator));
        }
    }

    // A line is "key=value;key=value"; bootstrap.servers and the serializers are added where they are missing.
    // The answer is "refused", or what differs from the configuration with nothing set.
    static void scenarios() throws Exception {
        List<String> bare = answer(given(""));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> answer = answer(given(line));
            answer.removeAll(bare);
            System.out.println(line + "\t" + String.join(";", answer));
        }
    }

    static Map<String, Object> given(String line) {
        Map<String, Object> given = new HashMap<>();
        given.put("bootstrap.servers", "localhost:9999");
        given.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        given.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        for (String pair : line.split(";")) {
            String[] both = pair.split("=", 2);
            if (both.length == 2) given.put(both[0], both[1]);
        }
        return given;
    }

    static List<String> answer(Map<String, Object> given) throws Exception {
        try {
            ProducerConfig config = new ProducerConfig(given);
            Method delivery = KafkaProducer.class.getDeclaredMethod(
                "configureDeliveryTimeout", ProducerConfig.class, Logger.class);
            delivery.setAccessible(true);
            Object deliveryTimeout = delivery.invoke(null, config, LoggerFactory.getLogger("oracle"));
            ClientUtils.parseAndValidateAddresses(config);
            List<String> shown = new ArrayList<>();
            for (Map.Entry<String, ?> e : new TreeMap<>(config.values()).entrySet()) {
                boolean isDelivery = e.getKey().equals("delivery.timeout.ms");
                if (!e.getKey().equals("client.id") || given.containsKey("client.id"))
                    shown.add(e.getKey() + "=" + (isDelivery ? deliveryTimeout : e.getValue()));
            }
            return shown;
        } catch (ConfigException e) {
            return new ArrayList<>(List.of("refused"));
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof ConfigException) return new ArrayList<>(List.of("refused"));
            throw e;
        }
    }

    static void properties() throws Exception {
        Properties properties = new Properties();
        properties.load(System.in);
        List<String> lines = new ArrayList<>();
        for (Map.Entry<Object, Object> e : new TreeMap<>(properties).entrySet())
            lines.add("  " + quote((String) e.getKey()) + ": " + quote((String) e.getValue()));
        System.out.println("{\n" + String.join(",\n", lines) + "\n}");
    }

    static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 32 || c > 126) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }
}
