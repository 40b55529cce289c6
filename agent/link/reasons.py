"""Why there is no connection, in one line each."""

import socket
import ssl

from edgeperf.agent.link.incoming import Disconnected
from edgeperf.agent.link.tls import certificate_problem, clock_may_be_wrong

#: MQTT 5 reason codes of CONNACK that trying again does not cure.
REFUSALS = {
    0x84: "the broker does not speak MQTT 5",
    0x85: "the broker does not take this client id",
    0x86: "user name or password is wrong",
    0x87: "this board is not authorised",
    0x8C: "the broker does not take this way of logging in",
}


def explain(error: Exception, where: str) -> Disconnected:
    """Return what *error* means for the connection to *where*."""
    if isinstance(error, ssl.SSLError):
        certificate = isinstance(error, ssl.SSLCertVerificationError)
        return Disconnected(
            certificate_problem(error, where), refused=certificate and not clock_may_be_wrong(error)
        )
    if isinstance(error, socket.gaierror):
        return Disconnected(f"{where}: no such host: {error.strerror}")
    reason = getattr(error, "strerror", None) or error
    return Disconnected(f"{where}: cannot be reached: {reason}")
