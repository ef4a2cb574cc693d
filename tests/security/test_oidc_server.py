"""The token server of the tests as a process, as brokers and programs have it."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import KeySet

from aioproduce.config.secret import Secret
from aioproduce.security.tokens.bounded_post import TokenEndpoint
from aioproduce.security.tokens.endpoint import EndpointSource
from aioproduce.security.tokens.grants import ClientSecret
from tests.security.oidc_server import AUDIENCE, CLIENT_ID, CLIENT_SECRET, ISSUER, SUBJECT


def test_it_runs_as_a_process_and_signs_what_its_jwks_verifies(tmp_path: Path) -> None:
    port_file, ca_file = tmp_path / "port", tmp_path / "ca.pem"
    command = [sys.executable, "-m", "tests.security.oidc_server"]
    with subprocess.Popen([*command, "--port-file", port_file, "--ca-file", ca_file]) as process:
        try:
            deadline = time.monotonic() + 60
            while not port_file.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            base = f"https://localhost:{port_file.read_text()}"

            endpoint = TokenEndpoint(url=f"{base}/token", ca_location=str(ca_file))
            credential = EndpointSource(endpoint, ClientSecret(CLIENT_ID, Secret(CLIENT_SECRET))).fetch()
            context = ssl.create_default_context(cafile=str(ca_file))
            with urllib.request.urlopen(f"{base}/jwks", context=context, timeout=10) as answer:
                keys = KeySet.import_key_set(json.load(answer))
        finally:
            process.terminate()

    assert process.returncode == 0
    verified = jwt.decode(credential.value.value.reveal(), keys, algorithms=["RS256"])
    assert (verified.claims["iss"], verified.claims["aud"], verified.claims["sub"]) == (
        ISSUER,
        AUDIENCE,
        SUBJECT,
    )
