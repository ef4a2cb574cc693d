// Prints what Kafka's own client makes of sasl.jaas.config: jaas.tsv and claims.tsv next to this file, which
// tests/security/test_jaas.py compares aioproduce with. To print them again (Java 17, the jars of Kafka 4.3.1):
//   cut -f1 jaas.tsv > /tmp/given && java -cp 'libs/*' JaasOracle.java entry < /tmp/given > jaas.tsv
//   cut -f1 claims.tsv > /tmp/given && java -cp 'libs/*' JaasOracle.java claims < /tmp/given > claims.tsv
// Columns: the configuration, and what Java says of it: both JSON in ASCII, null where Java refuses.

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler;

public class JaasOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JSON.getFactory().configure(JsonGenerator.Feature.ESCAPE_NON_ASCII, true);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Object said = null;
            try {
                AppConfigurationEntry entry = read(JSON.readValue(line, String.class));
                said = args[0].equals("claims") ? claims(entry) : plain(entry);
            } catch (Exception refused) {
                said = null;
            }
            System.out.println(line + "\t" + JSON.writeValueAsString(said));
        }
    }

    static AppConfigurationEntry read(String config) {
        List<AppConfigurationEntry> entries =
            JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(config))).configurationEntries();
        return entries.get(0);
    }

    static Object plain(AppConfigurationEntry entry) {
        return List.of(entry.getLoginModuleName(), new TreeMap<String, Object>(entry.getOptions()));
    }

    static Object claims(AppConfigurationEntry entry) throws Exception {
        OAuthBearerUnsecuredLoginCallbackHandler handler = new OAuthBearerUnsecuredLoginCallbackHandler();
        handler.configure(Map.of(), "OAUTHBEARER", List.of(entry));
        OAuthBearerTokenCallback asked = new OAuthBearerTokenCallback();
        handler.handle(new Callback[] {asked});
        if (asked.token() == null) return null;
        String[] parts = asked.token().value().split("\\.");
        Map<String, Object> claims = JSON.readValue(Base64.getUrlDecoder().decode(parts[1]), Map.class);
        claims.put("lifetime", Math.round(((Number) claims.remove("exp")).doubleValue() - ((Number) claims.remove("iat")).doubleValue()));
        return new TreeMap<>(claims);
    }
}
