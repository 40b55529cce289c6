"""Whether a model is on this board, and where it comes from if not.

Named by sha256 throughout. The run itself resolves the digest (cache, bundled, mirrors,
upstream) and checks it; here it is only decided whether the coordinator must be asked first.
What the catalogue knows comes from the look at the board: reading it here would cost memory.
"""

from collections.abc import Callable

from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.inspector import Inspector
from edgeperf.agent.link.uploads import Blobs
from edgeperf.agent.messages import Code, MessageError, ModelRef

#: Tells whether the run will find a model; False when it is on its way.
FindModel = Callable[[ModelRef], bool]


class Models:
    """Finds models for runs.

    Args:
        blobs: The cache and the line to the coordinator.
        inspector: Knows the catalogue.
    """

    def __init__(self, blobs: Blobs, inspector: Inspector) -> None:
        self._blobs = blobs
        self._inspector = inspector
        self._given_up: set[str] = set()

    def find(self, model: ModelRef) -> bool:
        """Tell whether the run will find *model*; asks the coordinator for it if not.

        Raises:
            MessageError: It is nowhere and cannot be fetched.
        """
        is_here = self._inspector.findings.catalogue.get(model.sha256)
        if is_here or self._blobs.cached(model) is not None:
            return True
        if model.sha256 in self._given_up:
            self._given_up.discard(model.sha256)
            return True  # the coordinator has not got it, the catalogue's own address may
        try:
            self._blobs.fetch(model, "")
        except LinkInputError as error:
            if is_here is not None:
                return True
            raise MessageError(Code.MODEL, str(error)) from error
        return False

    def fetched(self, sha256: str, problem: str | None) -> str | None:
        """Take note of the end of a fetch; returns why the run that waits must fail."""
        if problem is None or sha256 not in self._inspector.findings.catalogue:
            return problem
        self._given_up.add(sha256)
        return None
