"""What a recipe makes of pixels: the same numbers for as long as its version is the same."""

import hashlib

import numpy as np
import pytest

from edgeperf.datasets.own.images import VERSION, ImageMaker
from edgeperf.datasets.own.recipes import InputRecipe

pytest.importorskip("PIL.Image")

#: Stored samples are found again by the version. When this digest must change, VERSION must
#: be raised with it, or samples that other code made are taken for this code's.
MADE_BY = {2: "b2d4161ad4d1f4cc8ce166776af365918ee0520e2cfc8ea6474b1a44d0c14499"}

RECIPES = [
    InputRecipe(resize=resize, filter=kind, colour=colour, crop=crop)
    for resize in ("stretch", "shorter_side", "letterbox")
    for kind in ("linear", "area")
    for colour in ("RGB", "BGR")
    for crop in (None, 0.875)
    if crop is None or resize != "letterbox"
]


def test_the_same_version_makes_the_same_numbers() -> None:
    """Filters of our own, in every way of fitting, larger and smaller."""
    random = np.random.default_rng(7)
    sha256 = hashlib.sha256()
    for height, width in ((75, 100), (97, 61), (20, 33)):
        pixels = random.integers(0, 256, (height, width, 3), np.uint8)
        for recipe in RECIPES:
            made = ImageMaker(recipe, (32, 32)).convert(pixels, "pixels")
            sha256.update(np.ascontiguousarray(made).tobytes())
    assert {VERSION: sha256.hexdigest()} == MADE_BY
