"""Whether a model is on this board, and where it comes from if not.

Named by sha256 throughout. The run itself resolves the digest (cache, bundled, mirrors,
upstream) and checks it; here it is only decided whether the coordinator must be asked first.
"""

import os
from collections.abc import Callable
from pathlib import Path

from edgeperf import datasets
from edgeperf.agent.link.errors import LinkInputError
from edgeperf.agent.link.uploads import Blobs
from edgeperf.agent.messages import Code, MessageError, ModelRef
from edgeperf.datasets.catalogue import Asset, models

#: Tells whether the run will find a model; False when it is on its way.
FindModel = Callable[[ModelRef], bool]


class Models:
    """Finds models for runs.

    Args:
        blobs: The cache and the line to the coordinator.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._given_up: set[str] = set()

    def find(self, model: ModelRef) -> bool:
        """Tell whether the run will find *model*; asks the coordinator for it if not.

        Raises:
            MessageError: It is nowhere and cannot be fetched.
        """
        asset = _catalogued(model.sha256)
        if self._blobs.cached(model) is not None or (asset and _is_local(asset)):
            return True
        if model.sha256 in self._given_up:
            self._given_up.discard(model.sha256)
            return True  # the coordinator has not got it, the catalogue's own address may
        try:
            self._blobs.fetch(model, "")
        except LinkInputError as error:
            if asset is not None:
                return True
            raise MessageError(Code.MODEL, str(error)) from error
        return False

    def fetched(self, sha256: str, problem: str | None) -> str | None:
        """Take note of the end of a fetch; returns why the run that waits must fail."""
        if problem is None or _catalogued(sha256) is None:
            return problem
        self._given_up.add(sha256)
        return None


def _catalogued(sha256: str) -> Asset | None:
    for model in models():
        for file in model.files:
            if file.asset.sha256 == sha256:
                return file.asset
    return None


def _is_local(asset: Asset) -> bool:
    """Tell whether the catalogue's file seems to be here; the run checks what is in it."""
    mirrors = [Path(text) for text in os.environ.get("EDGEPERF_MIRROR", "").split(os.pathsep)]
    bundled = Path(datasets.__file__).with_name("bundled") / asset.name
    places = [bundled, *(m / part for m in mirrors for part in (asset.path, asset.name))]
    return any(place.is_file() for place in places)
