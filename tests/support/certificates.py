"""Certificates for tests of TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
from cryptography.x509 import load_pem_x509_certificate


class Authority:
    """An authority, the file with its certificate, and certificates that it issues."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._authority = trustme.CA()
        self.file = str(folder / "ca.pem")
        self._authority.cert_pem.write_to_path(self.file)

    def issue(self, *names: str) -> trustme.LeafCert:
        """Issue a certificate for host names and addresses."""
        return self._authority.issue_cert(*names)

    def file_for(self, *names: str) -> str:
        """Write a new certificate and its key into one file; return its path."""
        path = self._folder / f"{names[0]}.pem"
        self.issue(*names).private_key_and_cert_chain_pem.write_to_path(str(path))
        return str(path)

    def keystore(self, *names: str, password: str) -> bytes:
        """Issue a certificate; return it and its key in the format PKCS 12, as Java reads them."""
        issued = self.issue(*names)
        return pkcs12.serialize_key_and_certificates(
            b"gateway",
            load_pem_private_key(issued.private_key_pem.bytes(), None),  # type: ignore[arg-type]
            load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()),
            None,
            BestAvailableEncryption(password.encode()),
        )

    def server_context(self, *names: str, clients: Authority | None = None) -> ssl.SSLContext:
        """Return the context of a server; with ``clients`` it requires certificates of that authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.issue(*names).configure_cert(context)
        if clients is not None:
            context.load_verify_locations(clients.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
