"""Counting what went wrong, by a short phrase each."""

#: More phrases than this are counted together, so that noise cannot fill the memory.
MOST_PHRASES = 40
OTHERS = "other faults"


def count_fault(faults: dict[str, int], phrase: str, times: int = 1) -> None:
    """Count *phrase* in *faults*."""
    if phrase not in faults and len(faults) >= MOST_PHRASES:
        phrase = OTHERS
    faults[phrase] = faults.get(phrase, 0) + times
