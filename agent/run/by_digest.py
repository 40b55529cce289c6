"""Models named by what they are: ``sha256:...``, as the fleet names them.

The digest decides; which catalogue entry it belongs to, if any, only adds the task and
the reference. A file outside the catalogue is one that the agent fetched into the cache.
"""

import os
import re
from pathlib import Path

from edgeperf import InputError
from edgeperf.datasets.assets import Places
from edgeperf.datasets.catalogue import CatalogueModel, ModelFile, models

_NAME = re.compile(r"sha256:([0-9a-f]{64})")


def digest_in(model: str) -> str | None:
    """Return the digest if *model* is named by one."""
    match = _NAME.fullmatch(model)
    return None if match is None else match[1]


def catalogue_entry(digest: str) -> tuple[CatalogueModel, ModelFile] | None:
    """Return the catalogue's model and file with that digest, None if it has none."""
    for model in models():
        for file in model.files:
            if file.asset.sha256 == digest:
                return model, file
    return None


def cached_file(digest: str) -> Path:
    """Return the file with that digest in the cache, by its name.

    Raises:
        InputError: There is none.
    """
    cache = Places.from_environment(os.environ).cache
    found = [] if cache is None else sorted(cache.glob(f"{digest}.*"))
    if not found:
        raise InputError(f"model sha256:{digest}: neither in the catalogue nor in the cache")
    return found[0]
