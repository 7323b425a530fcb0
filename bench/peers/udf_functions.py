"""The functions of `bench/engines.py`, after those of the CAGE paper (section 6): plain Python over
Arrow arrays, the same code native in an engine and in sandboxes.

The forest has 10 trees of depth 8 over 28 inputs, as arrays of thresholds, so that it needs no
package but numpy.
"""

import numpy as np
import pyarrow as pa

INPUTS, TREES, DEPTH = 28, 10, 8


def _forest() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each tree the inputs and thresholds of its inner nodes, and the values of its leaves."""
    numbers = np.random.default_rng(7)
    inner = (1 << DEPTH) - 1
    return [
        (
            numbers.integers(0, INPUTS, inner),
            numbers.random(inner),
            numbers.random(1 << DEPTH),
        )
        for _ in range(TREES)
    ]


_trees: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []


def forest(*columns: pa.Array) -> pa.Array:
    """The mean of the trees for each row. The model is made once for a process."""
    if not _trees:
        _trees.extend(_forest())
    rows = np.stack([np.asarray(column) for column in columns])
    total = np.zeros(rows.shape[1])
    for inputs, thresholds, leaves in _trees:
        node = np.zeros(rows.shape[1], dtype=np.int64)
        for _ in range(DEPTH):
            right = rows[inputs[node], np.arange(rows.shape[1])] > thresholds[node]
            node = 2 * node + 1 + right
        total += leaves[node - ((1 << DEPTH) - 1)]
    return pa.array(total / TREES)


def largest_factor(numbers: pa.Array) -> pa.Array:
    """The largest prime factor of each number, in plain Python."""
    return pa.array([_largest(number.as_py()) for number in numbers], pa.int64())


def _largest(number: int) -> int:
    factor, divisor = 1, 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factor, number = divisor, number // divisor
        divisor += 1
    return max(factor, number)


def first(*columns: pa.Array) -> pa.Array:
    """One of all inputs, unchanged: nothing but the passing of batches."""
    return columns[0]
