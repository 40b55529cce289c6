"""Boards join with a one-time code, which the person at the coordinator reads out.

The code is never sent: it seals question and answer (see
:mod:`edgeperf.agent.messages.enrolment`), so every open code is tried on a box until one
opens it. Few codes are open at a time and failures are counted, or trying would be cheap.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from edgeperf import EdgeperfError, InputError
from edgeperf.agent.messages import (
    REPLY,
    REQUEST,
    Code,
    EnrolReply,
    EnrolRequest,
    MessageError,
    is_name,
    new_code,
    seal,
    unseal,
)
from edgeperf.agent.messages import Broker as BrokerAddress
from edgeperf.coordinator.broker import Accounts, Broker, Endpoint
from edgeperf.coordinator.store import Store, devices
from edgeperf.coordinator.trust import Authority, Keys

_log = logging.getLogger(__name__)

_MOST_CODES = 16
_MOST_FAILURES, _WITHIN_S = 10, 60.0
_S = 1_000_000_000


class EnrolmentError(InputError):
    """A board cannot join; the message says why."""


class EnrolmentRefusedError(EdgeperfError):
    """No outstanding code opens the box."""


class TooManyTriesError(EdgeperfError):
    """Too many boxes did not open lately."""


class Enrolment:
    """Makes codes, and boards of them.

    Args:
        endpoint: Where boards find the broker.
        authority: Signs certificates of boards that ask for one; None does not.
        ca_pem: What boards shall trust; None is their system's.
        credentials: Board -> user and password at a broker that is not ours.
    """

    def __init__(  # noqa: PLR0913 - the parts that it ties together
        self,
        store: Store,
        keys: Keys,
        fleet: str,
        *,
        broker: Broker,
        endpoint: Endpoint,
        own_password: str,
        authority: Authority | None,
        ca_pem: str | None,
        credentials: Mapping[str, tuple[str, str]] | None,
        clock_ns: Callable[[], int],
    ) -> None:
        self._store = store
        self._keys = keys
        self._fleet = fleet
        self._broker = broker
        self._endpoint = endpoint
        self._own_password = own_password
        self._authority = authority
        self._ca_pem = ca_pem
        self._credentials = credentials
        self._clock_ns = clock_ns
        self._failures: deque[float] = deque()
        self._guard = threading.Lock()

    def invite(self, board: str | None, *, ttl_s: float) -> str:
        """Return a new code, for *board* only or for whoever shows it first.

        Raises:
            EnrolmentError: The name cannot be a board's, or too many codes are open.
        """
        if board is not None and not is_name(board):
            raise EnrolmentError(f"board {board[:60]!r}: a name is 1 to 40 of a-z, 0-9 and -")
        now_ns = self._clock_ns()
        code = new_code()
        with self._store.writing() as connection:
            if len(devices.open_invites(connection, now_ns=now_ns)) >= _MOST_CODES:
                raise EnrolmentError(
                    f"{_MOST_CODES} codes are open already; wait until they are used or expire"
                )
            expires_ns = now_ns + int(ttl_s * _S)
            devices.add_invite(connection, code, board=board, expires_ns=expires_ns)
        return code

    def redeem(self, raw: bytes) -> bytes:
        """Answer a sealed request to join.

        Raises:
            TooManyTriesError: Try again in a minute.
            EnrolmentRefusedError: No open code fits.
            MessageError: What was in the box cannot be used.
        """
        with self._guard:  # each try costs tens of milliseconds: one at a time
            self._check_rate()
            code, request = self._open(raw)
            reply = self._join(code, request)
        return seal(reply, code, REPLY)

    def admit(self, boards: Iterable[str]) -> list[EnrolReply]:
        """Take boards in without a code: an administrator asks, for simulated boards."""
        now_ns = self._clock_ns()
        with self._store.writing() as connection:
            rows = [devices.enroll(connection, board, now_ns=now_ns) for board in boards]
        self.publish_accounts()
        return [self._reply(row.id, row.enrolled_ns, row.counter, None) for row in rows]

    def revoke(self, board: str) -> None:
        """Shut a board out."""
        with self._store.writing() as connection:
            devices.revoke(connection, board, now_ns=self._clock_ns())
        self.publish_accounts()

    def accounts(self) -> Accounts:
        """Return who may connect to a broker of ours."""
        with self._store.reading() as connection:
            boards = devices.enrolled(connection)
        passwords = {board: self._keys.password(board, at) for board, at in boards.items()}
        return Accounts(passwords, self._own_password)

    def publish_accounts(self) -> None:
        """Tell the broker who may connect now."""
        self._broker.set_accounts(self.accounts())

    def _check_rate(self) -> None:
        now = time.monotonic()
        while self._failures and self._failures[0] < now - _WITHIN_S:
            self._failures.popleft()
        if len(self._failures) >= _MOST_FAILURES:
            raise TooManyTriesError("enrolment: too many wrong codes; wait a minute")

    def _open(self, raw: bytes) -> tuple[str, EnrolRequest]:
        with self._store.writing() as connection:
            invites = devices.open_invites(connection, now_ns=self._clock_ns())
        for invite in invites:
            try:
                request = unseal(raw, invite.code, REQUEST, EnrolRequest)
            except MessageError as error:
                if error.code is not Code.BAD_SIGNATURE:
                    raise
            else:
                if invite.device not in {None, request.device}:
                    raise EnrolmentRefusedError(
                        f"enrolment: the code is for {invite.device!r}, not {request.device!r}"
                    )
                return invite.code, request
        self._failures.append(time.monotonic())
        raise EnrolmentRefusedError("enrolment: no open code fits; make a new one and try again")

    def _join(self, code: str, request: EnrolRequest) -> EnrolReply:
        now_ns = self._clock_ns()
        cert = None
        if request.csr_pem is not None and self._authority is not None:
            cert = self._authority.certify(request.csr_pem, request.device)
        with self._store.writing() as connection:
            if not devices.use_invite(connection, code, now_ns=now_ns):
                raise EnrolmentRefusedError("enrolment: the code was used already")
            row = devices.enroll(connection, request.device, now_ns=now_ns)
        self.publish_accounts()
        _log.info("board %s joined", request.device)
        return self._reply(row.id, row.enrolled_ns, row.counter, cert)

    def _reply(self, board: str, at: int, counter: int, cert: str | None) -> EnrolReply:
        username: str | None = board
        password: str | None = self._keys.password(board, at)
        if self._credentials is not None:  # a board without any may have a certificate
            username, password = self._credentials.get(board, (None, None))
        endpoint = self._endpoint
        return EnrolReply(
            fleet=self._fleet,
            device=board,
            broker=BrokerAddress(
                host=endpoint.board_host,
                port=endpoint.port,
                tls=endpoint.tls,
                username=username,
                password=password,
            ),
            keys=(self._keys.public,),
            counter=counter,
            token=self._keys.token(board, at),
            ca_pem=self._ca_pem,
            cert_pem=cert,
        )
