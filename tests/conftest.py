"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder of real models and data: a mirror of the whole catalogue.

    ``EDGEPERF_TEST_MODELS`` names it; else it is ``../shared/models`` beside the checkout.
    """
    named = os.environ.get("EDGEPERF_TEST_MODELS")
    beside = Path(__file__).resolve().parents[2] / "shared" / "models"
    folder = Path(named) if named else beside
    if not folder.is_dir():
        reason = f"no folder of models: set EDGEPERF_TEST_MODELS, or put it at {folder}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
