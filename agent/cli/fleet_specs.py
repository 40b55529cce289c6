"""What a fleet command asks of a board: a spec put together from options and files."""

import json
from pathlib import Path
from typing import Any

from edgeperf import InputError
from edgeperf.agent.freeze.document import check_is_spec, frozen_from_json, is_frozen, read_file
from edgeperf.agent.spec import SpecError, check_asked, spec_from_json, spec_from_mapping


def asked_spec(
    *,
    model: str | None,
    spec_file: str | None,
    fields: tuple[str, ...],
    frozen: dict[str, Any] | None,
    **given: Any,
) -> dict[str, Any]:
    """Return the spec as data, checked; of a frozen one what it runs."""
    spec: dict[str, Any] = {}
    if frozen is not None:
        _check_beside(spec_file, fields, given)
        spec = dict(frozen["run"])
    elif spec_file is not None:
        try:
            raw = Path(spec_file).read_bytes()
        except OSError as error:
            raise SpecError(f"--spec {spec_file}: {error.strerror}") from error
        spec_from_json(raw, where=f"--spec {spec_file}")
        spec = json.loads(raw)
    spec |= {name: value for name, value in given.items() if value is not None}
    if model is not None:
        spec["model"] = model
    if "model" not in spec:
        raise SpecError("MODEL: give a model file or a catalogue name (see: edgeperf models)")
    for text in fields:
        put(spec, text)
    checked = spec_from_mapping(spec)
    if frozen is None:
        check_asked(checked)
    return spec


def _check_beside(spec_file: str | None, fields: tuple[str, ...], given: dict[str, Any]) -> None:
    """Refuse what a frozen spec holds already: beside it only places may be said."""
    from edgeperf.agent.freeze.repeating import PLACES  # noqa: PLC0415 - numpy, only here

    said = {name for name, value in given.items() if value is not None}
    said |= {text.partition("=")[0] for text in fields}
    if extra := sorted(said - set(PLACES)):
        raise SpecError(f"--spec {spec_file}: is frozen; leave out {', '.join(extra)}")


def frozen_of(spec_file: str | None) -> dict[str, Any] | None:
    """Return a frozen spec as data; None for a plain one."""
    if spec_file is None:
        return None
    raw = read_file(Path(spec_file), "--spec")
    check_is_spec(raw, f"--spec {spec_file}")
    if not is_frozen(raw):
        return None
    frozen_from_json(raw, where=spec_file)
    found: dict[str, Any] = json.loads(raw)
    return found


def put(spec: dict[str, Any], text: str) -> None:
    """Set ``FIELD=VALUE``; ``options.NAME`` reaches into a table, ``FIELD=`` unsets."""
    path, equals, raw = text.partition("=")
    if not equals or not path:
        raise InputError(f"--set {text}: expected FIELD=VALUE")
    *tables, name = path.split(".")
    node = spec
    for table in tables:
        node = node.setdefault(table, {})
        if not isinstance(node, dict):
            raise InputError(f"--set {text}: {table} is no table")
    if not raw:
        node.pop(name, None)
        return
    try:
        value = json.loads(raw)
    except ValueError:
        value = raw
    node[name] = raw if tables[:1] == ["options"] else value
