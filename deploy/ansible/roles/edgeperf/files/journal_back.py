"""Put the agent's journal back where an upgrade changed its form: PREVIOUS STATE.

An older agent refuses a newer journal, so it gets the copy that was kept. The copy would give
new events numbers that the newer agent has used, and the coordinator would take them for
those; so it counts on from far above. Where the form is the same, the journal goes on.
"""

import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

#: More events than an agent sends between an upgrade and its roll-back; gaps are no fault.
FAR = 1_000_000


def version(path: Path) -> int:
    """Return the version of a journal."""
    with closing(sqlite3.connect(path)) as journal:
        return int(journal.execute("PRAGMA user_version").fetchone()[0])


def main(previous: Path, state: Path) -> None:
    """Compare, and put back."""
    kept, now = previous / "agent.db", state / "agent.db"
    if not kept.exists() or (now.exists() and version(now) <= version(kept)):
        sys.stdout.write("the journal goes on\n")
        return
    copies = {path.name: path.read_bytes() for path in previous.glob("agent.db*")}
    owner = state.stat()
    os.umask(0o077)
    os.setegid(owner.st_gid)  # from here as the agent: what lies in its folder may be a link
    os.seteuid(owner.st_uid)
    for path in state.glob("agent.db*"):
        path.unlink()
    for name, content in copies.items():
        (state / name).write_bytes(content)
    with closing(sqlite3.connect(now)) as journal, journal:
        journal.execute(
            "UPDATE meta SET value = CAST(value AS INTEGER) + ? WHERE name = 'next_seq'", (FAR,)
        )
    sys.stdout.write("the journal is put back\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
