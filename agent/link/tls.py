"""TLS for MQTT and HTTP, and what its failures mean in one line."""

import ssl
import time

from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.identity import Identity

#: OpenSSL's verify codes that a person can do something about (x509_vfy.h).
_NOT_YET_VALID, _EXPIRED, _HOST_MISMATCH, _ADDRESS_MISMATCH = 9, 10, 62, 64


def tls_context(identity: Identity) -> ssl.SSLContext:
    """Return a context that checks the other side and shows this board's certificate.

    Raises:
        LinkInputError: A file is missing or is no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=identity.ca)
    except (OSError, ssl.SSLError) as error:
        raise LinkInputError(f"{identity.ca}: no file of trusted certificates: {error}") from error
    if identity.certificate is not None:
        try:
            context.load_cert_chain(identity.certificate, identity.private_key)
        except (OSError, ssl.SSLError) as error:
            raise LinkInputError(
                f"{identity.certificate}: certificate and key cannot be used: {error}"
            ) from error
    return context


def certificate_problem(error: ssl.SSLError, where: str) -> str:
    """Return one line that says what is wrong with the other side's certificate."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return f"{where}: TLS failed: {error.reason or error}; is this a TLS port?"
    if error.verify_code == _NOT_YET_VALID:
        today = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        return (
            f"{where}: its certificate is not valid yet by this board's clock ({today});"
            " set the clock"
        )
    if error.verify_code == _EXPIRED:
        return f"{where}: its certificate has expired; renew it, or check this board's clock"
    if error.verify_code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
        return f"{where}: its certificate is for another name: {error.verify_message}"
    return (
        f"{where}: its certificate is not signed by a CA that this board trusts"
        f" ({error.verify_message}); give the right one with --ca"
    )


def clock_may_be_wrong(error: BaseException) -> bool:
    """Tell whether waiting may cure *error*: a board without a clock battery starts in the past."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code == _NOT_YET_VALID
