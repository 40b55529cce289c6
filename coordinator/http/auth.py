"""Who asks: a person with the admin token, a board with its own, or nobody.

The admin token stands in a file that only its owner can read; ``edgeperf fleet`` reads it.
There are no cookies, so a web page cannot ask in somebody's name.
"""

import hmac
from collections.abc import Callable

from starlette.requests import Request

from edgeperf import EdgeperfError
from edgeperf.coordinator.store import Store, devices
from edgeperf.coordinator.trust import Keys


class NotAllowedError(EdgeperfError):
    """The token is missing, wrong, or not good enough for this."""


class Doorman:
    """Checks the ``Authorization: Bearer`` header of requests."""

    def __init__(self, store: Store, keys: Keys, admin_token: Callable[[], str]) -> None:
        self._store = store
        self._keys = keys
        self._admin_token = admin_token

    def admin(self, request: Request) -> None:
        """Let the administrator pass.

        Raises:
            NotAllowedError: It is not one.
        """
        if not self.is_admin(request):
            raise NotAllowedError(
                "token: not the administrator's; see admin.token in the coordinator's directory"
            )

    def is_admin(self, request: Request) -> bool:
        """Tell whether the administrator asks."""
        return hmac.compare_digest(_token(request).encode(), self._admin_token().encode())

    def board(self, request: Request) -> str:
        """Return the board that asks.

        Raises:
            NotAllowedError: The token is no enrolled board's.
        """
        with self._store.reading() as connection:
            enrolled = devices.enrolled(connection)
        owner = self._keys.owner(_token(request), enrolled)
        if owner is None:
            raise NotAllowedError("token: no enrolled board's; enroll again")
        return owner


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
