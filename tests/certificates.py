"""Certificates that sign themselves, and those of an authority, for ports with TLS that tests open on the loopback."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

LIFE = timedelta(days=1)


def make_certificate(key_file: Path, certificate_file: Path) -> int:
    """Write a new key and its certificate; returns the serial number of the certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "disqued under test")])
    now, serial = datetime.now(UTC), x509.random_serial_number()
    built = x509.CertificateBuilder(
        name, name, key.public_key(), serial, now - LIFE, now + LIFE,
        [x509.Extension(x509.SubjectAlternativeName.oid, False,
                        x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]))],
    )  # fmt: skip
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    key_file.chmod(0o600)
    certificate_file.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return serial


class Authority:
    """An authority, whose certificate is in `file`, and the certificates that it issues."""

    def __init__(self, folder: Path, name: str = "authority under test") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._folder = folder
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        is_authority = x509.BasicConstraints(ca=True, path_length=None)
        signed = self._built(self._name, self._key, LIFE, is_authority, x509.KeyUsage(
            False, False, False, False, False, key_cert_sign=True, crl_sign=True, encipher_only=False,
            decipher_only=False))  # fmt: skip
        self.file.write_bytes(signed.public_bytes(Encoding.PEM))

    def issue(self, name: str, *hosts: str, ends_in: timedelta = LIFE, password: bytes = b"") -> tuple[Path, Path]:
        """Issue a certificate for some addresses and names; returns the files of the key and of the certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.IPAddress(IPv4Address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        extensions = [x509.SubjectAlternativeName(names)] if names else []
        signed = self._built(subject, key, ends_in, x509.BasicConstraints(ca=False, path_length=None), *extensions)
        key_file, certificate_file = self._folder / f"{name}.key", self._folder / f"{name}.pem"
        encryption = BestAvailableEncryption(password) if password else NoEncryption()
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        key_file.chmod(0o600)
        certificate_file.write_bytes(signed.public_bytes(Encoding.PEM))
        return key_file, certificate_file

    def _built(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, ends_in: timedelta, *extensions: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            self._name, subject, key.public_key(), x509.random_serial_number(), now - 2 * LIFE, now + ends_in
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())
