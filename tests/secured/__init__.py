"""A real Kafka that asks who is there: TLS and SASL on listeners of their own, with everything that they need.

`kafka` starts it; `certificates` makes the certificates, `kdc` is the Kerberos, and tokens come from
`tests.security.oidc_server`. `cells` names the ways to be connected, and says with which of Kafka's keys a client
takes each. Used by the tests of `tests/integration` by the fixtures `secured1` and `secured3`.
"""
