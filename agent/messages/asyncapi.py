"""``python -m edgeperf.agent.messages.asyncapi FOLDER``: writes the wire's description.

The AsyncAPI document and the JSON Schema of every message are made from the structures, so
they cannot say anything else; a test compares what is in ``docs/`` with what the code says.
"""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from edgeperf.agent.messages.acks import Ack, BlobInit, BlobStatus
from edgeperf.agent.messages.commands import COMMANDS, CommandEnvelope
from edgeperf.agent.messages.decoding import MAX_CHUNK_BYTES, MAX_MESSAGE_BYTES
from edgeperf.agent.messages.event_data import EVENTS
from edgeperf.agent.messages.presence import BoardState, CoordinatorState, Description, Telemetry
from edgeperf.agent.messages.reports import EventEnvelope
from edgeperf.agent.messages.topics import ROOT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIGNED = {
    "key": {"type": "string", "pattern": "^[0-9a-f]{16}$", "description": "Id of the signing key."},
    "sig": {"type": "string", "description": "Ed25519 over the canonical rest, base64."},
}
#: The longest word that YAML may take for something else: ``false``.
_YAML_WORD = 5
#: Messages that are what they are, without an envelope.
_PLAIN: dict[str, type[msgspec.Struct]] = {
    "state": BoardState,
    "description": Description,
    "telemetry": Telemetry,
    "coordinator-state": CoordinatorState,
    "blob-init": BlobInit,
}
_SIGNED_PLAIN: dict[str, type[msgspec.Struct]] = {"ack": Ack, "blob-status": BlobStatus}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of every message by the message's short name."""
    found = {name: _schema(kind) for name, kind in _PLAIN.items()}
    found |= {name: _sign(_schema(kind)) for name, kind in _SIGNED_PLAIN.items()}
    for type_, kind in EVENTS.items():
        found[short_name(type_)] = _enveloped(EventEnvelope, type_, kind)
    for type_, kind in COMMANDS.items():
        found[short_name(type_)] = _sign(_enveloped(CommandEnvelope, type_, kind))
    return found


def short_name(type_: str) -> str:
    """Return the name of a message's schema: ``edgeperf.run.start.v1`` is ``run-start-v1``."""
    return type_.removeprefix("edgeperf.").replace(".", "-")


def document() -> dict[str, Any]:
    """Return the AsyncAPI document; its messages refer to the schema files beside it."""
    events = [short_name(type_) for type_ in EVENTS]
    commands = [short_name(type_) for type_ in COMMANDS]
    channels = {
        "state": _channel("dev/{device}/state", ["state"], "What the board is doing."),
        "description": _channel("dev/{device}/desc", ["description"], "What the board can do."),
        "commands": _channel("dev/{device}/cmd", commands, "What the board is asked to do."),
        "events": _channel("dev/{device}/evt", events, "What happened, in order of `seq`."),
        "acks": _channel(
            "dev/{device}/ack", ["ack", "blob-status"], "What the coordinator has for good."
        ),
        "telemetry": _channel("dev/{device}/tlm", ["telemetry"], "Live readings, lossy."),
        "blob": _channel(
            "dev/{device}/blob/{sha256}/init", ["blob-init"], "A file is about to come in chunks."
        ),
        "coordinator": _channel("coord/state", ["coordinator-state"], "Whether anybody listens."),
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "edgeperf fleet",
            "version": "1.0.0",
            "description": (
                "Boards and coordinators over MQTT 5. Every payload is one JSON object of at most"
                f" {MAX_MESSAGE_BYTES} bytes, except the chunks of a blob: raw bytes, at most"
                f" {MAX_CHUNK_BYTES}, at `blob/{{sha256}}/{{offset}}`, ended by an empty `fin`."
                " Unknown fields are ignored. Made from the code; do not edit."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": _operations(channels),
        "components": {
            "messages": {
                name: {"name": name, "payload": {"$ref": f"./schemas/{name}.json"}}
                for name in schemas()
            }
        },
    }


def write(folder: Path) -> list[Path]:
    """Write ``asyncapi.yaml`` and ``schemas/*.json`` into *folder* and return the paths."""
    texts = {folder / "asyncapi.yaml": to_yaml(document())}
    for name, schema in schemas().items():
        texts[folder / "schemas" / f"{name}.json"] = json.dumps(schema, indent=2) + "\n"
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return list(texts)


def to_yaml(value: object, indent: int = 0) -> str:
    """Return *value* as YAML: block style, every string that needs it in JSON's quotes."""
    pad = "  " * indent
    if isinstance(value, dict) and value:
        return "".join(f"{pad}{_scalar(k)}:{_nested(v, indent)}" for k, v in value.items())
    if isinstance(value, list) and value:
        return "".join(f"{pad}-{_nested(v, indent)}" for v in value)
    return f"{pad}{_scalar(value)}\n"


def _nested(value: object, indent: int) -> str:
    if isinstance(value, dict | list) and value:
        return "\n" + to_yaml(value, indent + 1)
    return f" {_scalar(value)}\n"


def _scalar(value: object) -> str:
    if isinstance(value, str) and value.replace("_", "").isalpha() and len(value) > _YAML_WORD:
        return value
    return json.dumps(value)


def _channel(topic: str, messages: list[str], what: str) -> dict[str, Any]:
    names = [part.strip("{}") for part in topic.split("/") if part.startswith("{")]
    return {
        "address": f"{ROOT}/{{fleet}}/{topic}",
        "description": what,
        "parameters": {name: {"description": _PARAMETERS[name]} for name in ["fleet", *names]},
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
    }


_PARAMETERS = {
    "fleet": "Name of the fleet, 1 to 40 of a-z, 0-9 and -.",
    "device": "Name of the board, 1 to 40 of a-z, 0-9 and -; also its MQTT user.",
    "sha256": "Digest of the file, 64 hexadecimal digits.",
}
#: Channel -> who sends (seen from the board), QoS, retained.
_DIRECTIONS = {
    "state": ("send", 1, True),
    "description": ("send", 1, True),
    "commands": ("receive", 1, False),
    "events": ("send", 1, False),
    "acks": ("receive", 1, False),
    "telemetry": ("send", 0, False),
    "blob": ("send", 1, False),
    "coordinator": ("receive", 1, True),
}


def _operations(channels: dict[str, Any]) -> dict[str, Any]:
    """Return what a board does with each channel."""
    return {
        f"{action}-{name}": {
            "action": action,
            "channel": {"$ref": f"#/channels/{name}"},
            "bindings": {"mqtt": {"qos": qos, "retain": retain, "bindingVersion": "0.2.0"}},
        }
        for name, (action, qos, retain) in _DIRECTIONS.items()
        if name in channels
    }


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own: dict[str, Any] = components.pop(reference["$ref"].rsplit("/", 1)[1])
    return {"$schema": DIALECT, **own, **({"$defs": components} if components else {})}


def _enveloped(
    envelope: type[msgspec.Struct], type_: str, kind: type[msgspec.Struct]
) -> dict[str, Any]:
    """Return the schema of *envelope* with *kind* inside."""
    schema, data = _schema(envelope), _schema(kind)
    defs = schema.pop("$defs", {}) | data.pop("$defs", {})
    del data["$schema"]
    schema["title"] = type_
    schema["description"] = data.get("description", "")
    schema["properties"] |= {"type": {"const": type_}, "data": data}
    return schema | ({"$defs": defs} if defs else {})


def _sign(schema: dict[str, Any]) -> dict[str, Any]:
    schema["properties"] |= _SIGNED
    schema["required"] = [*schema["required"], *_SIGNED]
    return schema


if __name__ == "__main__":
    for written in write(Path(sys.argv[1])):
        sys.stdout.write(f"{written}\n")
