"""Runtimes that can execute a model.

To add one, write ``backends/NAME.py`` with a class that fits
:class:`~edgeperf.backends.base.Backend` and add its line to :data:`BACKENDS`.
"""

#: Name in a run spec -> where the class is. Strings, because a board has one or two
#: of these runtimes installed and must not import the others.
BACKENDS: dict[str, str] = {}
