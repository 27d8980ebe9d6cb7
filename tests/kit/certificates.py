"""Certificates for tests of TLS: an authority of the test's own, and what it signs."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    """Signs certificates, and writes them into a directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _named(name)
        made = self._signed(self._subject, self._key.public_key(), [(x509.BasicConstraints(True, None), True)], DAY)
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def certificate(
        self,
        file: str,
        common: str = "server",
        names: tuple[x509.GeneralName, ...] | None = None,
        lasts: timedelta = DAY,
    ) -> tuple[Path, Path]:
        """The files of a new certificate and of its key: of a server on this machine, or with ``names`` of a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        local = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))
        made = self._signed(
            _named(common), key.public_key(), [(x509.SubjectAlternativeName(names or local), False)], lasts
        )
        certificate, private = self.directory / f"{file}.pem", self.directory / f"{file}.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        private.touch(0o600)
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def trusting(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Of a client that trusts this authority, and shows a certificate of its own."""
        context = ssl.create_default_context(cafile=self.path)
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
        lasts: timedelta,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + lasts)
        )
        for extension, critical in extensions:
            built = built.add_extension(extension, critical)
        return built.sign(self._key, hashes.SHA256())


def _named(*common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common])
