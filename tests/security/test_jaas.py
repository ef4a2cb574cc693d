"""`sasl.jaas.config`: read as `kafka_jaas/JaasOracle.java` printed that Kafka does; refused without its values."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproduce.config.secret import Secret
from aioproduce.errors import ConfigError
from aioproduce.security.jaas import (
    IamLogin,
    KerberosLogin,
    OAuthBearerLogin,
    PlainLogin,
    ScramLogin,
    UnsecuredClaims,
    entry,
    parse,
)
from tests.fuzz.targets.jaas import reference
from tests.security.hidden import everything_told

KAFKA = Path(__file__).with_name("kafka_jaas")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"


def answers(name: str) -> list[tuple[str, object]]:
    lines = (KAFKA / name).read_text(encoding="ascii").splitlines()
    return [(json.loads(config), json.loads(said)) for config, said in (line.split("\t") for line in lines)]


def ours(config: str) -> object:
    try:
        module, options = entry(Secret(config))
    except ConfigError:
        return None
    return [module.reveal(), {key.reveal(): value.reveal() for key, value in options.left().items()}]


def test_what_java_reads_is_read_alike() -> None:
    judged = answers("jaas.tsv")
    assert [config for config, said in judged if ours(config) != said] == []
    assert sum(said is not None for _, said in judged) > 150
    assert sum(said is None for _, said in judged) > 100


def test_the_reference_of_the_fuzz_target_is_java() -> None:
    for config, said in answers("jaas.tsv"):
        found = reference(config)
        assert (None if found is None else list(found)) == said, config


def test_claims_of_an_unsigned_token_are_those_of_java() -> None:
    judged = 0
    for config, said in answers("claims.tsv"):
        if said is None or "unsecuredLoginFoo" in config or '"-5"' in config:
            continue  # Java makes no token (see below), or passes over what is refused here
        login = parse(Secret(config))
        assert isinstance(login, OAuthBearerLogin)
        claims = login.unsecured
        assert claims is not None
        lists = {name: list(values) for name, values in claims.lists.items()}
        assert {**claims.strings, **claims.numbers, **lists, "lifetime": claims.lifetime} == said
        judged += 1
    assert judged >= 7


@pytest.mark.parametrize(
    "option", ['unsecuredLoginNumberClaim_n="five"', 'unsecuredLoginLifetimeSeconds="1.5"']
)
def test_a_number_that_java_does_not_take(option: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid number"):
        parse(Secret(f"{OAUTHBEARER} required unsecuredLoginStringClaim_sub=a {option};"))


@pytest.mark.parametrize("value", ["-5", "1_000", " 60", "x", "9" * 30])
def test_a_lifetime_is_whole_seconds(value: str) -> None:
    with pytest.raises(ConfigError, match="unsecuredLoginLifetimeSeconds is not a valid number"):
        parse(Secret(f'{OAUTHBEARER} required unsecuredLoginLifetimeSeconds="{value}";'))


# As the clusters' own pages have them.
READ = {
    "Confluent Cloud": (
        f"{PLAIN} required username='KEY' password='SECRET+/=';",
        PlainLogin(username="KEY", password=Secret("SECRET+/=")),
    ),
    "Aiven": (
        f'{SCRAM} required username="avnadmin" password="AVNS_pw";',
        ScramLogin(username="avnadmin", password=Secret("AVNS_pw")),
    ),
    "a delegation token": (
        f'{SCRAM} required username="id" password="aG1hYw==" tokenauth="true";',
        ScramLogin(username="id", password=Secret("aG1hYw=="), tokenauth=True),
    ),
    "Confluent Cloud, OAuth": (
        f"{OAUTHBEARER} required clientId='id' clientSecret='s3' scope='api' extension_logicalCluster='lkc-1'"
        " extension_identityPoolId='pool-1';",
        OAuthBearerLogin(
            client_id="id",
            client_secret=Secret("s3"),
            scope="api",
            extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
        ),
    ),
    "all by other keys": (f"{OAUTHBEARER} required;", OAuthBearerLogin()),
    "unsecured": (
        f'{OAUTHBEARER} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="60";',
        OAuthBearerLogin(unsecured=UnsecuredClaims(strings={"sub": "alice"}, lifetime=60)),
    ),
    "a keytab": (
        f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/etc/alice.keytab" principal="alice@EXAMPLE.COM"'
        ' serviceName="kafka";',
        KerberosLogin(keytab="/etc/alice.keytab", principal="alice@EXAMPLE.COM", service_name="kafka"),
    ),
    "a ticket": (f"{KERBEROS} required useTicketCache=true;", KerberosLogin(use_ticket_cache=True)),
    "MSK": (f"{IAM} required;", IamLogin()),
    "MSK, all": (
        f'{IAM} required awsProfileName="p" awsRoleArn="arn:aws:iam::1:role/r" awsRoleSessionName="s"'
        ' awsStsRegion="eu-west-1" awsDebugCreds=true;',
        IamLogin(
            profile_name="p",
            role_arn="arn:aws:iam::1:role/r",
            role_session_name="s",
            sts_region="eu-west-1",
            debug_creds=True,
        ),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_login_modules(name: str) -> None:
    config, login = READ[name]
    assert parse(Secret(config)) == login


SECRET = "correct-horse"
REFUSED = {
    "no module": ("", "it is empty"),
    "a password alone": (SECRET, "not followed by a flag"),
    "a password that looks like a class": (
        f"correct.{SECRET} required;",
        "its first word is not a login module",
    ),
    "no flag": (f'{PLAIN} username="alice" password="{SECRET}";', "write required"),
    "no semicolon": (f'{PLAIN} required username="alice" password="{SECRET}"', "no semicolon"),
    "no quotes": (f"{PLAIN} required username=alice password={SECRET}!{SECRET};", "option 3 has no value"),
    "a number": (f'{PLAIN} required password="{SECRET}" username=5;', "option 2 has no value"),
    "a blank in it": (f'{PLAIN} required username=a password=b {SECRET}="{SECRET}";', r"1 option\(s\)"),
    "a semicolon in it": (f"{PLAIN} required username=a password=b;{SECRET} required;", "2 login modules"),
    "two modules": (f"{PLAIN} required a={SECRET};\n{SCRAM} required;", "2 login modules"),
    "a mistyped option": (f"{PLAIN} required usrname=a password='{SECRET}';", "it lacks the option username"),
    "one more option": (
        f"{SCRAM} required username=a password='{SECRET}' tokenaut='{SECRET}';",
        r"did you mean tokenauth\?",
    ),
    "no password": (f"{PLAIN} required username=a;", "it lacks the option password"),
    "an empty password": (f"{PLAIN} required username=a password='';", "it lacks the option password"),
    "neither true nor false": (
        f"{SCRAM} required username=a password='{SECRET}' tokenauth=yes;",
        "tokenauth is neither true nor false",
    ),
    "a keytab that Java passes over": (f'{KERBEROS} required keyTab="{SECRET}";', "useKeyTab=true"),
    "Kerberos, other": (f"{KERBEROS} required renewTGT=true;", r"1 option\(s\)"),
    "another module": (
        f"com.example.VaultLoginModule required password='{SECRET}';",
        "com.example.VaultLoginModule is not a login module",
    ),
    "number": (f'{OAUTHBEARER} required unsecuredLoginNumberClaim_n="{SECRET}";', "is not a valid number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why_and_shows_nothing(name: str) -> None:
    config, said = REFUSED[name]
    with pytest.raises(ConfigError, match=said) as refused:
        parse(Secret(config))
    assert refused.value.key == "sasl.jaas.config"
    assert str(refused.value).startswith("sasl.jaas.config: ")
    told = everything_told(refused.value, ours_only=True)
    assert SECRET not in told
    assert "horse" not in told


def test_secrets_are_hidden_in_what_was_read() -> None:
    for config in (
        f'{PLAIN} required username="alice" password="{SECRET}";',
        f'{SCRAM} required username="alice" password="{SECRET}";',
        f'{OAUTHBEARER} required clientSecret="{SECRET}";',
    ):
        assert SECRET not in repr(parse(Secret(config)))
        module, options = entry(Secret(config))
        assert SECRET not in f"{module!r} {options!r} {options.left()!r}"


@given(st.text(), st.text(min_size=1))
def test_a_value_in_quotes_comes_back(name: str, password: str) -> None:
    def quoted(text: str) -> str:
        return "".join(
            f"\\{char}" if char in '"\\' else {"\n": "\\n", "\r": "\\r"}.get(char, char) for char in text
        )

    config = f'{PLAIN} required username="a{quoted(name)}" password="{quoted(password)}";'
    assert parse(Secret(config)) == PlainLogin(username=f"a{name}", password=Secret(password))


@given(st.text(alphabet=" ab=;\"'\\/*\n5-.\u00e4\ud83d", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for config in (text, f"M required {text}"):
        with suppress(ConfigError):
            parse(Secret(config))
