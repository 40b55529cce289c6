"""Names of metrics: which are better when lower, and which say nothing about a model."""

_FALLING = ("cost", "least_cost", "ece", "wer", "cer")
_ABOUT_SAMPLES = ("base_rate", "threshold@")


def bare(name: str) -> str:
    """Return *name* without the class in brackets behind it."""
    return name.partition("[")[0]


def falls(name: str) -> bool:
    """Say whether lower is better."""
    return bare(name) in _FALLING


def is_about_samples(name: str) -> bool:
    """Say whether *name* describes samples or a setting, so that no value of it is better."""
    return name.startswith(_ABOUT_SAMPLES)
