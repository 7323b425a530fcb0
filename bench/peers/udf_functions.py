"""The functions of `bench/engines.py`, after those of the CAGE paper (sections 4 and 5.2): plain
Python over Arrow arrays, the same code native in an engine and in sandboxes.

The forest has 10 trees of depth 8 over 28 inputs, as arrays of thresholds, so that it needs no
package but numpy.
"""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa

INPUTS, TREES, DEPTH = 28, 10, 8


# For each tree the inputs and thresholds of its inner nodes, and the values of its leaves.
Trees = list[tuple[np.ndarray, np.ndarray, np.ndarray]]


def _forest() -> Trees:
    """The same trees in each process."""
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


_trees: Trees = []
_pickled: list[bytes] = []


def forest(*columns: pa.Array) -> pa.Array:
    """The mean of the trees for each row. The model is made once for a process."""
    if not _trees:
        _trees.extend(_forest())
    return _scores(_trees, *columns)


def forest_for_each_batch(*columns: pa.Array) -> pa.Array:
    """The same with a model that is read for each batch, as the paper's native function does: from
    memory, where the paper's reads a file."""
    if not _pickled:
        _pickled.append(pickle.dumps(_forest()))
    return _scores(pickle.loads(_pickled[0]), *columns)


def _scores(trees: Trees, *columns: pa.Array) -> pa.Array:
    rows = np.stack([np.asarray(column) for column in columns])
    total = np.zeros(rows.shape[1])
    for inputs, thresholds, leaves in trees:
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


def largest_factor_of_last(*columns: pa.Array) -> pa.Array:
    """The largest prime factor of the last of all inputs: data-intensive and compute-intensive."""
    return largest_factor(columns[-1])


def first(*columns: pa.Array) -> pa.Array:
    """One of all inputs, unchanged: nothing but the passing of batches."""
    return columns[0]


# Steps of a training: with 25,000 rows about 100 ms.
STEPS = 200


def train(*columns: pa.Array) -> bytes:
    """A logistic regression of the last column by the others, pickled: an aggregate function that
    trains a model on a group."""
    inputs = np.stack([np.asarray(column) for column in columns[:-1]])
    wanted = np.asarray(columns[-1])
    weights = np.zeros(len(inputs))
    for _ in range(STEPS):
        found = 1 / (1 + np.exp(-(weights @ inputs)))
        weights -= inputs @ (found - wanted) / len(wanted)
    return pickle.dumps(weights)


def train_each(*lists: Any) -> pa.Array:
    """The same for groups: a list for each column, an element for each group."""
    groups = range(len(lists[0]))
    return pa.array([train(*(column[n].values for column in lists)) for n in groups], pa.binary())


def weights(models: list[bytes]) -> float:
    """The sum of the weights of all models, by which answers are compared."""
    return float(sum(pickle.loads(model).sum() for model in models))
