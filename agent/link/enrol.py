"""Joining a fleet: once, with a code that somebody read from the coordinator's screen."""

import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edgeperf import __version__
from edgeperf.agent.link.errors import LinkError, LinkInputError, RefusedError
from edgeperf.agent.link.http import BlobServer, Reply
from edgeperf.agent.link.identity import Identity, write_identity, write_secret
from edgeperf.agent.messages import (
    ENROL_PATH,
    REPLY,
    REQUEST,
    EnrolReply,
    EnrolRequest,
    MessageError,
    is_name,
    normalise_code,
    public_key,
    seal,
    unseal,
)

DEFAULT_PORT = 8484
_OK, _FORBIDDEN, _TOO_MANY = 200, 403, 429


def enrol(
    coordinator: str, code: str, *, state: Path, device: str | None = None, ca: Path | None = None
) -> Identity:
    """Join the fleet of *coordinator* and write this board's identity.

    Args:
        coordinator: ``HOST``, ``HOST:PORT`` or a URL.
        code: One-time code, as typed.
        state: The agent's directory.
        device: Name for this board; None makes one that stays.
        ca: Certificates to trust for https; None leaves it to the code, which both
            sides must know.

    Raises:
        LinkInputError: An argument cannot be used, or the code is not accepted.
        RefusedError: The coordinator's certificate is not to be trusted.
        LinkError: The coordinator cannot be reached or does not know its own code.
    """
    url = base_url(coordinator)
    code = normalise_code(code)
    name = device or default_device()
    if not is_name(name):
        raise LinkInputError(f"name {name!r}: expected up to 40 of a-z, 0-9 and -")
    private_key, csr_pem = _certificate_request(name)
    request = EnrolRequest(device=name, agent=__version__, csr_pem=csr_pem)
    server = BlobServer(url, context=_context(ca) if url.startswith("https") else None)
    reply = _answer(url, server.post(ENROL_PATH, seal(request, code, REQUEST)), code)
    identity = _identity(reply, url, state, private_key, ca)
    write_identity(state, identity)
    return identity


def base_url(coordinator: str) -> str:
    """Return the coordinator's URL from what a person typed.

    Raises:
        LinkInputError: It cannot be one.
    """
    text = coordinator if "://" in coordinator else f"http://{coordinator}"
    parts = urlsplit(text)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise LinkInputError(f"{coordinator!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LinkInputError(f"{coordinator!r}: expected HOST, HOST:PORT or http(s)://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"


def default_device() -> str:
    """Return a name for this board that stays: its host name and a part of its machine id."""
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:30] or "board"
    try:
        machine = Path("/etc/machine-id").read_text("ascii").strip()
    except OSError:
        return host
    # Not the id itself: systemd asks that it stay on the machine.
    digest = hashes.Hash(hashes.SHA256())
    digest.update(f"edgeperf {machine}".encode())
    return f"{host}-{digest.finalize().hex()[:6]}"


def _answer(url: str, reply: Reply, code: str) -> EnrolReply:
    if reply.status == _FORBIDDEN:
        raise RefusedError(f"{url}: the code is wrong, used or too old; ask for a new one")
    if reply.status == _TOO_MANY:
        raise LinkError(f"{url}: too many attempts; wait a minute")
    if reply.status != _OK:
        raise LinkError(f"{url}: answered {reply.status}; is it an edgeperf coordinator?")
    try:
        answer = unseal(reply.body, code, REPLY, EnrolReply)
        for key in answer.keys:
            public_key(key)
    except MessageError as error:
        raise LinkError(
            f"{url}: its answer does not prove that it knows the code ({error}); nothing was kept"
        ) from error
    return answer


def _identity(
    reply: EnrolReply, url: str, state: Path, private_key: bytes, ca: Path | None
) -> Identity:
    files: dict[str, str | None] = {"ca": str(ca) if ca else None}
    contents = {"ca": reply.ca_pem, "certificate": reply.cert_pem}
    if reply.cert_pem is not None:
        contents["private_key"] = private_key.decode("ascii")
    for name, content in contents.items():
        if content is not None:
            path = state / f"{name}.pem"
            write_secret(path, content.encode("ascii"))
            files[name] = str(path)
    host = reply.broker.host or urlsplit(url).hostname
    return Identity(
        fleet=reply.fleet,
        device=reply.device,
        broker=msgspec.structs.replace(reply.broker, host=host),
        keys=reply.keys,
        counter=reply.counter,
        http=url if reply.http is None else reply.http,
        token=reply.token,
        ca=files["ca"],
        certificate=files.get("certificate"),
        private_key=files.get("private_key"),
    )


def _certificate_request(name: str) -> tuple[bytes, str]:
    """Return a fresh private key and a request for its certificate, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private, signed.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _context(ca: Path | None) -> ssl.SSLContext:
    """Return what checks the coordinator's certificate while joining.

    Without *ca* nothing does: a new board cannot know the fleet's own CA. The sealed boxes
    prove that both sides know the code and hide what is in them; the answer brings the CA
    that everything afterwards is checked with.
    """
    try:
        if ca is None:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise LinkInputError(f"{ca}: no file of trusted certificates: {error}") from error
