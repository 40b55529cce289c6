"""A small certificate authority for the fleet: one CA, one server certificate, one a board.

Only needed once the coordinator listens beyond this machine. Certificates are dated back a day,
since a board's clock may be behind; the server's is made anew when its names change or
it is about to expire.
"""

import ipaddress
import itertools
import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgeperf.agent.messages import Code, MessageError
from edgeperf.coordinator.files import write_private
from edgeperf.coordinator.trust.keys import KeyFileError

_CA_DAYS, _LEAF_DAYS, _RENEW_DAYS = 3650, 825, 30


class Authority:
    """The CA in *folder*, made on first use, and the server certificate beside it."""

    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "ca.pem"
        self.server_cert = folder / "server.pem"
        self.server_key = folder / "server.key"
        self._ca_key_file = folder / "ca.key"
        if not self.ca_file.exists():
            self._make_ca()
        self._ca = _read_cert(self.ca_file)
        self._key = _read_key(self._ca_key_file)

    @property
    def ca_pem(self) -> str:
        """The CA's certificate, which boards trust."""
        return self.ca_file.read_text("ascii")

    def serve_as(self, names: list[str]) -> None:
        """Make sure that the server certificate is good for *names* and not about to expire."""
        if self.server_cert.exists() and self.server_key.exists():
            kept = _read_cert(self.server_cert)
            late = datetime.now(timezone.utc) + timedelta(days=_RENEW_DAYS)
            if set(names) <= _names_of(kept) and kept.not_valid_after_utc > late:
                return
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        cert = self._sign("edgeperf coordinator", key.public_key(), server=alternatives)
        write_private(self.server_key, _key_pem(key))
        write_private(self.server_cert, cert.public_bytes(serialization.Encoding.PEM))

    def certify(self, csr_pem: str, board: str) -> str:
        """Return a client certificate for the key in a certificate request.

        Its name is *board*, whatever the request says, and it may do nothing but identify
        a client.

        Raises:
            MessageError: It is no request, or it is not signed by its own key.
        """
        key = _requested_key(csr_pem)
        cert = self._sign(board, key, server=None)
        return cert.public_bytes(serialization.Encoding.PEM).decode("ascii")

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePublicKey,
        *,
        server: x509.SubjectAlternativeName | None,
    ) -> x509.Certificate:
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = (
            _dated(x509.CertificateBuilder(), _LEAF_DAYS)
            .subject_name(_name(name))
            .issuer_name(self._ca.subject)
            .public_key(key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if server:
            builder = builder.add_extension(server, critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _make_ca(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("edgeperf fleet CA")
        signing = {"key_cert_sign": True, "crl_sign": True}
        others = (
            "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
            "key_agreement", "encipher_only", "decipher_only",
        )  # fmt: skip
        cert = (
            _dated(x509.CertificateBuilder(), _CA_DAYS)
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(**signing, **dict.fromkeys(others, False)), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        write_private(self._ca_key_file, _key_pem(key))
        write_private(self.ca_file, cert.public_bytes(serialization.Encoding.PEM))


def _requested_key(csr_pem: str) -> ec.EllipticCurvePublicKey:
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode())
        genuine, key = request.is_signature_valid, request.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise MessageError(Code.MALFORMED, "csr_pem: not a certificate request") from error
    if not genuine or not isinstance(key, ec.EllipticCurvePublicKey):
        raise MessageError(
            Code.MALFORMED, "csr_pem: expected an elliptic-curve key and its own signature"
        )
    return key


def own_names() -> list[str]:
    """Return the names and addresses by which this machine may be called."""
    names = {"localhost", "127.0.0.1", socket.gethostname().split(".")[0], socket.getfqdn()}
    names |= {f"{socket.gethostname().split('.')[0]}.local"}
    return sorted(name for name in names | _addresses() if name)


def _addresses() -> set[str]:
    """Read this machine's own IPv4 addresses from the kernel's table of routes."""
    try:
        lines = Path("/proc/self/net/fib_trie").read_text("ascii").splitlines()
    except OSError:
        return set()
    found = set()
    for above, line in itertools.pairwise(lines):
        if line.strip() == "/32 host LOCAL":
            found.add(above.split()[-1])
    return found


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(cert: x509.Certificate) -> set[str]:
    found = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in found}


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _dated(builder: x509.CertificateBuilder, days: int) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read_cert(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path}: not a certificate in PEM: {error}") from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: not a private key in PEM: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise KeyFileError(f"{path}: expected an elliptic-curve key")
    return key
