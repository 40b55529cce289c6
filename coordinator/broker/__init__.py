"""The broker between boards and coordinator: joined by URL, or a child of ours. The door."""

from edgeperf.coordinator.broker.base import (
    LOOPBACK,
    Accounts,
    Broker,
    BrokerConfigError,
    BrokerError,
    Endpoint,
    free_port,
)
from edgeperf.coordinator.broker.embedded import EmbeddedBroker, is_installed
from edgeperf.coordinator.broker.external import ExternalBroker, parse_broker_url
from edgeperf.coordinator.broker.mosquitto import Mosquitto, find_mosquitto

__all__ = [
    "LOOPBACK",
    "Accounts",
    "Broker",
    "BrokerConfigError",
    "BrokerError",
    "EmbeddedBroker",
    "Endpoint",
    "ExternalBroker",
    "Mosquitto",
    "find_mosquitto",
    "free_port",
    "is_installed",
    "parse_broker_url",
]
