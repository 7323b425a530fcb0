"""The part of Snowmelt that runs inside a sandbox, next to the user's code.

Invariant: importing it loads only the standard library; pyarrow, numpy and pandas are imported with
the first UDF that needs them.
"""
