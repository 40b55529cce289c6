"""``edgeperf meter kinds``: the kinds of meters and their options, from the drivers' own words."""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from edgeperf import InputError

_OPTION = re.compile(r"    (\w+): (.+)")


@click.command("kinds")
@click.argument("kind", required=False)
def kinds(kind: str | None) -> None:
    """List the kinds of meters, or the options of one KIND."""
    from edgeperf.power import meter_class, meter_names  # noqa: PLC0415 - drivers

    if kind is not None:
        driver: Any = meter_class(kind)
        click.echo(f"{kind}: {_words(driver)}\n\noptions, with what is taken without them:")
        told = dict(_told(driver.Options))
        for name, default in _defaults(driver.Options).items():
            click.echo(f"    {f'{name}={default}':<24} {told.get(name, '')}".rstrip())
        return
    for name in meter_names():
        try:
            line = _words(meter_class(name))
        except InputError as error:
            line = str(error)
        click.echo(f"{name:<12}{line}")


def _words(driver: type) -> str:
    """Return what a driver's module says that it is for."""
    text = sys.modules[driver.__module__].__doc__ or ""
    return _plain(text.partition("\n")[0])


def _told(options: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Yield each option that is described, with its description on one line."""
    described = (inspect.getdoc(options) or "").partition("Attributes:\n")[2]
    for entry in re.split(r"\n(?=    \w)", described):
        if found := _OPTION.match(" ".join([entry.partition("\n")[0], *entry.split("\n")[1:]])):
            yield found[1], _plain(" ".join(found[2].split()))


def _defaults(options: type[msgspec.Struct]) -> dict[str, Any]:
    defaults = msgspec.to_builtins(options())
    return {name: "" if value is None else value for name, value in defaults.items()}


def _plain(text: str) -> str:
    return text.replace("``", "")
