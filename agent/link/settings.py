"""Everything the service is told, in one place, checked before it starts."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeperf.agent.link.child import RUN_PROGRAM
from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.identity import Identity, read_identity
from edgeperf.agent.link.policy import BoardFile, read_board_file

_PROBE = ("-m", "edgeperf.agent.link.probe")
PROBE_PROGRAM = (
    (sys.executable, "-P", *_PROBE) if sys.version_info >= (3, 11) else (sys.executable, *_PROBE)
)


_SERVICE_STATE = Path("/var/lib/edgeperf")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the service works with.

    Attributes:
        state: Directory for the identity, the journal and the runs.
        cache: Directory for models, named by sha256.
        identity: Who this board is.
        board: What its owner allows.
        run_program: How a run is started, up to and including ``run``.
        probe_program: How the board is looked at.
        ack_timeout_s: Patience with the coordinator before the first repetition.
        keepalive_s: MQTT keep-alive.
        longest_pause_s: Between two attempts to connect, and to upload.
        silence_s: A run that says nothing for so long is hung.
    """

    state: Path
    cache: Path
    identity: Identity
    board: BoardFile = BoardFile()
    run_program: tuple[str, ...] = RUN_PROGRAM
    probe_program: tuple[str, ...] = PROBE_PROGRAM
    ack_timeout_s: float = 10.0
    keepalive_s: int = 30
    longest_pause_s: float = 60.0
    silence_s: float = 900.0

    @property
    def runs(self) -> Path:
        """Directory with one directory per run."""
        return self.state / "runs"


def default_state(environment: Mapping[str, str]) -> Path:
    """Return where the agent keeps its files.

    ``EDGEPERF_STATE``, else systemd's ``STATE_DIRECTORY``, else the service's own
    directory for whoever may write there, else below the home directory.
    """
    for name in ("EDGEPERF_STATE", "STATE_DIRECTORY"):
        if chosen := environment.get(name):
            return Path(chosen)
    if os.access(_SERVICE_STATE, os.W_OK):  # `sudo -u edgeperf edgeperf agent enroll`
        return _SERVICE_STATE
    base = Path(environment.get("XDG_STATE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local/state") / "edgeperf"


def read_settings(state: Path, board_file: Path | None) -> Settings:
    """Read what is in *state*.

    Args:
        state: The agent's directory.
        board_file: The board's file, which must be there; None is ``board.toml`` in systemd's
            ``CONFIGURATION_DIRECTORY``, else in *state*, if there is one.

    Raises:
        LinkInputError: The board was never enrolled, or a file is wrong; names the field.
    """
    if board_file is not None and not board_file.exists():
        raise LinkInputError(
            f"--board-file {board_file}: no such file; without it this board would allow all that"
            " a signed command asks"
        )
    cache = os.environ.get("EDGEPERF_CACHE")
    configuration = Path(os.environ.get("CONFIGURATION_DIRECTORY", state))
    return Settings(
        state=state,
        cache=Path(cache) if cache else state / "cache",
        identity=read_identity(state),
        board=read_board_file(board_file or configuration / "board.toml"),
    )
