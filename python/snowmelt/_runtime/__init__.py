"""The part of Snowmelt that runs inside a sandbox, beside the user's code.

Invariant: importing it loads the standard library only; pyarrow, numpy and pandas come with the
first UDF that needs them.
"""
