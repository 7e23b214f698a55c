"""Certificates that sign themselves, for the ports with TLS that tests open on the loopback interface."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
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
    certificate_file.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return serial
