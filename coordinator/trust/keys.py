"""The coordinator's secrets, and the passwords and tokens that follow from them.

A board's password and HTTP token are HMACs of its name and the moment of its enrolment, so
that no secret stands in the store, and enrolling again voids the old ones.
"""

import base64
import contextlib
import hashlib
import hmac
import secrets
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edgeperf import InputError
from edgeperf.agent.messages import key_id, public_text
from edgeperf.coordinator.files import write_private

_SIGNING_KEY = "signing.pem"
_BOARD_SECRET = "board.secret"  # noqa: S105 - a file name


class KeyFileError(InputError):
    """A key file cannot be used; the message names it."""


class Keys:
    """The signing key and the board secret in *folder*, made on first use.

    Coordinators that share a fleet share this folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signing = _signing_key(folder / _SIGNING_KEY)
        self._secret = _board_secret(folder / _BOARD_SECRET)

    @property
    def id(self) -> str:
        """Short name of the signing key."""
        return key_id(self.signing.public_key())

    @property
    def public(self) -> str:
        """What boards obey, base64."""
        return public_text(self.signing.public_key())

    def password(self, board: str, enrolled_ns: int) -> str:
        """Return a board's password at the broker."""
        return self._derive("mqtt", board, enrolled_ns)

    def token(self, board: str, enrolled_ns: int) -> str:
        """Return a board's token for HTTP: its name, a dot, the proof."""
        return f"{board}.{self._derive('http', board, enrolled_ns)}"

    def owner(self, token: str, enrolled: dict[str, int]) -> str | None:
        """Return the board that a token belongs to; None for one that is not good.

        Args:
            token: As it came.
            enrolled: Boards that may connect, and when each was enrolled (ns).
        """
        board = token.partition(".")[0]
        if (enrolled_ns := enrolled.get(board)) is None:
            return None
        good = self.token(board, enrolled_ns)
        return board if hmac.compare_digest(good.encode(), token.encode()) else None

    def _derive(self, purpose: str, board: str, enrolled_ns: int) -> str:
        text = f"edgeperf {purpose} {board} {enrolled_ns}"
        digest = hmac.digest(self._secret, text.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode("ascii").rstrip("=")


def mosquitto_hash(password: str, salt: bytes, *, iterations: int = 101) -> str:
    """Return a line's second half for a Mosquitto password file.

    Few iterations are enough: the passwords have 256 random bits.

    Source:
        mosquitto_passwd 2.0: ``$7$ITERATIONS$SALT$HASH``, PBKDF2 with SHA-512, base64.
    """
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations, dklen=64)
    parts = (base64.b64encode(part).decode("ascii") for part in (salt, digest))
    return "$".join(("", "7", str(iterations), *parts))


def _signing_key(path: Path) -> Ed25519PrivateKey:
    with contextlib.suppress(FileNotFoundError):
        return _read_signing_key(path)
    key = Ed25519PrivateKey.generate()
    write_private(
        path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    return key


def _read_signing_key(path: Path) -> Ed25519PrivateKey:
    raw = path.read_bytes()
    try:
        key = serialization.load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path}: not an unencrypted private key in PEM: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: expected an Ed25519 key, found {type(key).__name__}")
    return key


def _board_secret(path: Path) -> bytes:
    try:
        secret = bytes.fromhex(path.read_text("ascii").strip())
    except FileNotFoundError:
        secret = secrets.token_bytes(32)
        write_private(path, secret.hex().encode() + b"\n")
    except ValueError as error:
        raise KeyFileError(f"{path}: expected hexadecimal digits") from error
    if len(secret) != 32:  # noqa: PLR2004 - bytes of SHA-256
        raise KeyFileError(f"{path}: expected 64 hexadecimal digits")
    return secret
