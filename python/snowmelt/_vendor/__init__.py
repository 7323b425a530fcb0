"""Third-party modules kept here unchanged, so that both ends of a pickle have the same version.

`cloudpickle.py` is cloudpickle 3.1.2 (BSD-3-Clause; its licence stands at the top of the file).
A function pickled by value names the pickler's own helpers, so the sandbox needs that module too.
"""
