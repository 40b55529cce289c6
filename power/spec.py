"""How a user names a meter: ``KIND:PORT,KEY=VALUE,...``.

``ppk2:/dev/serial/by-id/usb-Nordic_PPK2_C0FFEE-if01,voltage=5.0``. The kind ends at the
first colon, so ports may contain colons (``ptdaemon:lab-pc:8888``); options start at the
first comma. A kind that needs no port may stand alone (``rapl``).
"""

from typing import TypeVar

import msgspec

from edgeperf.power.base import MeterInputError


class MeterSpec(msgspec.Struct, frozen=True):
    """A meter as the user names it, taken apart but not yet checked against its kind.

    Attributes:
        kind: Name in :data:`edgeperf.power.METERS`.
        port: Device path, ``host:port`` or whatever the kind takes; may be empty.
        options: The kind's own options, still text.
    """

    kind: str
    port: str
    options: dict[str, str]

    def __str__(self) -> str:
        """Return the text that parses to this."""
        head = f"{self.kind}:{self.port}" if self.port else self.kind
        return ",".join([head, *(f"{name}={value}" for name, value in self.options.items())])


def parse_meter_spec(text: str) -> MeterSpec:
    """Take a meter spec apart.

    Raises:
        MeterInputError: It is not ``KIND:PORT,KEY=VALUE,...``; says which part is not.
    """
    head, *pairs = text.strip().split(",")
    kind, _, port = head.partition(":")
    if not kind or not kind.isprintable() or " " in kind or "/" in kind:
        raise MeterInputError(
            f"meter {text!r}: starts with no kind of meter; expected KIND:PORT,KEY=VALUE,..."
        )
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise MeterInputError(f"meter {text!r}: {pair!r} is not KEY=VALUE")
        if name in options:
            raise MeterInputError(f"meter {text!r}: {name} is given twice")
        options[name] = value.strip()
    return MeterSpec(kind=kind, port=port.strip(), options=options)


AnyOptions = TypeVar("AnyOptions", bound=msgspec.Struct)


def parse_options(spec: MeterSpec, kind_options: type[AnyOptions]) -> AnyOptions:
    """Check a spec's options against its kind's own and convert them.

    Raises:
        MeterInputError: An option is unknown, of the wrong type or out of range.
    """
    known = sorted(kind_options.__struct_fields__)
    unknown = sorted(set(spec.options) - set(known))
    if unknown:
        raise MeterInputError(
            f"meter {spec}: {unknown[0]}: no such option; {spec.kind} has {', '.join(known)}"
        )
    try:
        return msgspec.convert(spec.options, kind_options, strict=False)
    except msgspec.ValidationError as error:
        raise MeterInputError(f"meter {spec}: {error}") from error
