"""A certificate authority and a server certificate for 127.0.0.1, made anew in a folder: for doubles that must speak TLS."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def make_certificate(folder: Path, names: Sequence[str] = ()) -> tuple[Path, Path]:
    """Write ca.pem and server.pem (key and certificate); return both.

    Args:
        names: host names that the server answers to besides localhost.
    """
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("emulated authority", "127.0.0.1"))
    now = datetime.now(UTC)

    def certificate(subject: x509.Name, public: ec.EllipticCurvePublicKey, is_ca: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )

    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    ca = certificate(ca_name, ca_key.public_key(), True).add_extension(
        x509.KeyUsage(digital_signature=True, key_cert_sign=True, crl_sign=True, **usage), critical=True
    )
    hosts = [x509.DNSName(host) for host in ("localhost", *names)]
    known = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *hosts])
    server = certificate(name, key.public_key(), False).add_extension(known, critical=False)
    pem = serialization.Encoding.PEM
    ca_file, server_file = folder / "ca.pem", folder / "server.pem"
    ca_file.write_bytes(ca.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    server_file.touch(mode=0o600)
    server_file.write_bytes(secret + server.sign(ca_key, hashes.SHA256()).public_bytes(pem))
    return ca_file, server_file
