"""Tasks: labelled samples, preprocessing, metrics and accuracy targets; and the assets behind them.

To add a task, write ``datasets/NAME.py`` with a class that fits
:class:`~edgeperf.datasets.base.Task` and add its line to :data:`TASKS`.
"""

#: Name of a task -> where it is. Strings, so that listing them imports none.
TASKS: dict[str, str] = {}
