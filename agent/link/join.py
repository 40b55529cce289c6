"""An identity from options, for a broker that somebody else set up."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.identity import Identity
from edgeperf.agent.messages import Broker, is_name, public_key

_PORTS = {"mqtt": 1883, "mqtts": 8883}


def identity_from(given: Mapping[str, object]) -> Identity:
    """Return the identity that the options of ``edgeperf agent join`` describe.

    Raises:
        LinkInputError: An option cannot be used; names it.
    """
    keys = given["keys"]
    if isinstance(keys, tuple):
        for key in keys:
            public_key(str(key))
    for option in ("fleet", "name"):
        if not is_name(str(given[option])):
            raise LinkInputError(f"--{option} {given[option]}: expected up to 40 of a-z, 0-9, -")
    document = {
        "fleet": given["fleet"],
        "device": given["name"],
        "broker": broker_from(
            str(given["url"]), given["username"], _secret(given["password_file"])
        ),
        "keys": keys,
        "http": given["http"],
        "token": _secret(given["token_file"]) or "",
        **{name: _absolute(given[name]) for name in ("ca", "certificate", "private_key")},
    }
    try:
        return msgspec.convert(document, Identity)
    except msgspec.ValidationError as error:
        raise LinkInputError(f"these options make no identity: {error}") from error


def broker_from(url: str, username: object, password: str | None) -> Broker:
    """Return the broker behind an address.

    Raises:
        LinkInputError: It is not ``mqtt://HOST[:PORT]`` or ``mqtts://HOST[:PORT]``.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise LinkInputError(f"--broker {url}: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/"):
        raise LinkInputError(f"--broker {url}: expected mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
    if parts.password:
        raise LinkInputError("--broker: give the password in a --password-file, not in the URL")
    return Broker(
        host=parts.hostname,
        port=port,
        tls=parts.scheme == "mqtts",
        username=str(username or parts.username) if username or parts.username else None,
        password=password,
    )


def _secret(path: object) -> str | None:
    if not isinstance(path, Path):
        return None
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LinkInputError(f"{path}: {error}") from error


def _absolute(path: object) -> str | None:
    return str(path.absolute()) if isinstance(path, Path) else None
