"""A native process of an engine that has loaded a model: says so, and waits for the end of its
input.

python bench/peers/model_holder.py 500
"""

import sys

import numpy as np
import pyarrow as pa


def model(megabytes: int) -> np.ndarray:
    """Random numbers of this size."""
    return np.random.default_rng(7).random(megabytes * 1_000_000 // 8)


if __name__ == "__main__":
    loaded = model(int(sys.argv[1]))
    print(f"ready, {pa.array(loaded[:4]).to_pylist()}", flush=True)
    sys.stdin.read()
