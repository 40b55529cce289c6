"""Which commands were seen: a command takes effect once, however often it arrives.

The digest of the whole message, its id, nonce and counter must be new together; the same
message again is a duplicate and gets the same answer; anything in between is a replay.
Commands may overtake each other on the way, so a counter below the highest is taken if it was
never used, within a window; a jump far ahead is a fault of the sender.
"""

import enum
import hashlib

from edgeperf.agent.link.database import Database
from edgeperf.agent.messages import Code, Command, MessageError

#: How far behind the highest counter a late command may be.
WINDOW = 4096
#: How far ahead the next one may be.
JUMP = 1_000_000


class Seen(enum.Enum):
    """What the ledger says of a command with a good signature."""

    NEW = "new"
    DUPLICATE = "duplicate"


class Ledger:
    """The commands table.

    Attributes:
        counter: Highest counter seen.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.counter = int(database.value("counter") or 0)

    def judge(self, command: Command, raw: bytes) -> Seen:
        """Say whether *command* is new; writes nothing.

        Raises:
            MessageError: A replay, or a counter out of reach.
        """
        connection = self._database.connection
        row = connection.execute(
            "SELECT digest FROM commands WHERE id = ?", (command.id,)
        ).fetchone()
        if row is not None:
            if row[0] == _digest(raw):
                return Seen.DUPLICATE
            raise MessageError(
                Code.REPLAYED, "its id was used for another command", message_id=command.id
            )
        clash = connection.execute(
            "SELECT id FROM commands WHERE counter = ? OR nonce = ?",
            (command.counter, command.nonce),
        ).fetchone()
        if clash is not None:
            raise MessageError(
                Code.REPLAYED,
                f"counter {command.counter} or its nonce was used by {clash[0]}",
                message_id=command.id,
            )
        if not self.counter - WINDOW < command.counter <= self.counter + JUMP:
            raise MessageError(
                Code.COUNTER,
                f"{command.counter} is out of reach; the highest seen is {self.counter}",
                message_id=command.id,
            )
        return Seen.NEW

    def record(self, command: Command, raw: bytes) -> None:
        """Write *command* down, before it has any effect."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO commands VALUES (?, ?, ?, ?, NULL)",
                (command.id, command.counter, command.nonce, _digest(raw)),
            )
            self.raise_counter(command.counter)
            connection.execute("DELETE FROM commands WHERE counter <= ?", (self.counter - WINDOW,))

    def raise_counter(self, counter: int) -> None:
        """Take nothing at or below *counter* as new from far away; never lowers it."""
        if counter > self.counter:
            self._database.keep("counter", str(counter))
            self.counter = counter

    def keep_reply(self, command_id: str, reply: bytes) -> None:
        """Keep the event that answers a command, for its duplicates."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE commands SET reply = ? WHERE id = ?", (reply, command_id))

    def reply(self, command_id: str) -> bytes | None:
        """Return the event that answered a command, None while there is none."""
        row = self._database.connection.execute(
            "SELECT reply FROM commands WHERE id = ?", (command_id,)
        ).fetchone()
        return None if row is None or row[0] is None else bytes(row[0])


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
