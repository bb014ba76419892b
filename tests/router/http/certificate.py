"""A certificate for localhost, made by the openssl program for one test run."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl program")


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For the side that has the certificate, and for the side that trusts it."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    has_it = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    has_it.load_cert_chain(certificate, key)
    return has_it, ssl.create_default_context(cafile=str(certificate))
