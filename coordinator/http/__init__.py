"""The HTTP interface for boards (blobs, enrolment) and for ``edgeperf fleet``. The door."""

from edgeperf.coordinator.http.app import make_app
from edgeperf.coordinator.http.auth import Doorman
from edgeperf.coordinator.http.parts import Parts
from edgeperf.coordinator.http.server import HttpError, Server

__all__ = ["Doorman", "HttpError", "Parts", "Server", "make_app"]
