"""In which precision a model really computes.

Only operators that do the arithmetic count (convolutions, matrix products, recurrent
cells): a softmax in float does not make an int8 model a float model. Each backend reads
them from what its runtime made of the model, and counts them here.
"""

from collections.abc import Mapping

#: Weights in int8, activations quantised on the fly, results in float.
DYNAMIC = "dynamic int8"


def summarise(counts: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
    """Return the precision in one word, and a note where one word is not enough.

    Args:
        counts: How many arithmetic operators run in each precision (``int8``, ``f32``,
            ...); :data:`DYNAMIC` among them.
    """
    total = sum(counts.values())
    if not total:
        return "f32", ()
    if set(counts) == {DYNAMIC}:
        return "mixed", ("Weights are int8; activations are quantised on the fly.",)
    if len(counts) == 1:
        return next(iter(counts)), ()
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shares = ", ".join(f"{count} in {name}" for name, count in most)
    return "mixed", (f"Of {total} convolutions and matrix products, {shares}.",)
