"""The store: every query and every change of rows, behind one door.

Open it with :func:`open_store`; take a connection with ``reading()`` or ``writing()`` and
hand it to the functions of the part that owns the rows: :mod:`devices`, :mod:`runs`,
:mod:`results`, :mod:`events`, :mod:`commands`, :mod:`campaigns`.
"""

from edgeperf.coordinator.store import campaigns, commands, devices, events, models, results, runs
from edgeperf.coordinator.store.database import Store, StoreUrlError, open_store
from edgeperf.coordinator.store.migrations import SCHEMA_VERSION, StoreError

__all__ = [
    "SCHEMA_VERSION",
    "Store",
    "StoreError",
    "StoreUrlError",
    "campaigns",
    "commands",
    "devices",
    "events",
    "models",
    "open_store",
    "results",
    "runs",
]
