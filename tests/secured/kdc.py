"""A Kerberos of the tests: MIT's krb5kdc with a realm in a folder, on a port of its own.

Debian's packages `krb5-kdc` and `krb5-admin-server`. Nothing of the machine's own configuration is read or changed.
Used by `tests.secured.kafka`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final, Self

from tests.kafka_node import free_ports

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
NO_KDC: Final = "no Kerberos: "
"""How the reason of a skip begins."""

REALM: Final = "AIOPRODUCE.TEST"
BROKER: Final = "kafka/localhost"
USER: Final = "alice"

# A KDC answers in milliseconds; a machine that is busy with brokers takes longer to start one.
_TIMEOUT: Final = 30.0

_CLIENTS: Final = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""

_SERVER: Final = """\
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_life = 1h
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


def find(program: str) -> str | None:
    """Where a program is: Debian puts it where only root's PATH leads."""
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def why_not() -> str | None:
    """Why there can be no KDC on this machine; `None` if there can."""
    missing = [program for program in PROGRAMS if find(program) is None]
    return (
        f"{NO_KDC}{', '.join(missing)} missing (apt-get install krb5-kdc krb5-admin-server)"
        if missing
        else None
    )


class Kdc:
    """A realm with one user and one service, while the block lasts.

    Attributes:
        config: `krb5.conf` for brokers and clients.
        broker_keytab: The keys of `kafka/localhost`.
        user_keytab: The keys of `alice`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = folder / "krb5.conf"
        self.broker_keytab = folder / "broker.keytab"
        self.user_keytab = folder / "user.keytab"
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a client's process needs to log in as `alice` by GSSAPI, and not by whatever ticket there is."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_CLIENT_KTNAME": str(self.user_keytab),
            "KRB5CCNAME": f"FILE:{self._folder / 'tickets'}",
        }

    def __enter__(self) -> Self:
        words = {"realm": REALM, "port": self._port, "folder": self._folder}
        self.config.write_text(_CLIENTS.format(**words))
        server = self._folder / "kdc.conf"
        server.write_text(_SERVER.format(**words))
        environment = os.environ | {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(server)}
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master", environment=environment)
        for principal, keytab in ((BROKER, self.broker_keytab), (USER, self.user_keytab)):
            for query in (f"addprinc -randkey {principal}", f"ktadd -k {keytab} {principal}"):
                self._run("kadmin.local", "-r", REALM, "-q", query, environment=environment)
        command = [str(find("krb5kdc")), "-n", "-r", REALM]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with open(self._folder / "krb5kdc.out", "wb") as out:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process. Safe to repeat."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(_TIMEOUT)
            self._process = None

    def _run(self, program: str, *args: str, environment: dict[str, str]) -> None:
        command = [str(find(program)), *args]
        subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=True,
            capture_output=True,
            timeout=_TIMEOUT,
        )

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    out = (self._folder / "krb5kdc.out").read_text(errors="replace")
                    raise RuntimeError(f"krb5kdc did not begin to listen: {out}") from None
                time.sleep(0.01)
            else:
                return
