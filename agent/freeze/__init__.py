"""Repeating a run exactly: its conditions frozen into a file, and a board held to that file.

``document`` is the file and its digest, ``freezing`` makes one from a result, ``places``
says where this machine has what the file names, and the modules with ``checks`` in their
name lay the board beside it. Decision 5 says which conditions matter.
"""
