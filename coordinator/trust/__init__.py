"""Who trusts whom: keys, passwords, tokens and certificates. The door of the folder."""

from edgeperf.coordinator.trust.certificates import Authority, own_names
from edgeperf.coordinator.trust.keys import KeyFileError, Keys, mosquitto_hash

__all__ = ["Authority", "KeyFileError", "Keys", "mosquitto_hash", "own_names"]
