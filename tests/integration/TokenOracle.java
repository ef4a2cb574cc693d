import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever;
import org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever;
import org.apache.kafka.common.security.oauthbearer.JwtRetriever;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredJws;

/**
 * What Kafka's own client asks a token endpoint for, and what Kafka's own broker says of its tokens.
 *
 * Each argument is one command, its words separated by tabs:
 * "ask", the class, and settings as key=value; "verify", a token and settings; "unsecured" and options of JAAS;
 * "read", a token without a signature.
 */
public class TokenOracle {
    private static final String MECHANISM = "OAUTHBEARER";

    public static void main(String[] commands) throws Exception {
        for (String command : commands) {
            String[] words = command.split("\t");
            switch (words[0]) {
                case "ask" -> {
                    JwtRetriever retriever = words[1].equals("JwtBearer")
                        ? new JwtBearerJwtRetriever() : new ClientCredentialsJwtRetriever();
                    retriever.configure(settings(words, 2), MECHANISM, jaas(Map.of()));
                    System.out.println(retriever.retrieve());
                }
                case "verify" -> {
                    BrokerJwtValidator validator = new BrokerJwtValidator();
                    validator.configure(settings(words, 2), MECHANISM, jaas(Map.of()));
                    System.out.println(validator.validate(words[1]).principalName());
                    validator.close();
                }
                case "unsecured" -> {
                    var handler = new OAuthBearerUnsecuredLoginCallbackHandler();
                    handler.configure(Map.of(), MECHANISM, jaas(pairs(words, 1)));
                    var callback = new OAuthBearerTokenCallback();
                    handler.handle(new Callback[] {callback});
                    System.out.println(callback.token().value());
                }
                case "read" -> {
                    var token = new OAuthBearerUnsecuredJws(words[1], "sub", "scope");
                    System.out.println(token.principalName() + "\t" + token.scope() + "\t" + token.lifetimeMs());
                }
                default -> throw new IllegalArgumentException(words[0]);
            }
        }
        // What refreshes the keys of a JWKS goes on otherwise.
        System.exit(0);
    }

    private static Map<String, String> pairs(String[] words, int from) {
        Map<String, String> pairs = new HashMap<>();
        for (int i = from; i < words.length; i++)
            pairs.put(words[i].substring(0, words[i].indexOf('=')), words[i].substring(words[i].indexOf('=') + 1));
        return pairs;
    }

    private static Map<String, ?> settings(String[] words, int from) {
        ConfigDef def = new ConfigDef();
        SaslConfigs.addClientSaslSupport(def);
        Map<String, Object> settings = new HashMap<>(new AbstractConfig(def, pairs(words, from), false).values());
        settings.values().removeIf(value -> value == null);
        return settings;
    }

    private static List<AppConfigurationEntry> jaas(Map<String, String> options) {
        return List.of(new AppConfigurationEntry(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
            AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, options));
    }
}
