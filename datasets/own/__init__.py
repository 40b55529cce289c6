"""The user's own data, without code: samples as they lie there, and a task file.

A task file is a small TOML: how an input is made of a sample, how the model's output is
read, which metric decides and what it must reach. ``edgeperf task new MODEL`` writes one.
The tasks of :mod:`edgeperf.datasets.profiles` are such files too.
"""
