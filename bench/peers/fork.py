"""The peer of a zygote: a plain Python that imports the same and forks, without a sandbox.

Run as a program: a folder of packages, the user's file, how often, and the modules to import.
It prints what `snowmelt-bench handlers` prints. The first line is that of the child: at once after
the fork, without even reading the user's file. The answer needs the file, as it does in a sandbox.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def _child(source: str, answers: int) -> None:
    first = time.monotonic_ns()
    names: dict[str, Any] = {"__name__": "handler"}
    exec(compile(source, "handler.py", "exec"), names)
    answer = names["handler"](0.0)
    os.write(answers, json.dumps([first, answer[-1]]).encode())


def _sample(source: str) -> tuple[int, int]:
    """Microseconds to the first line and to the answer."""
    answers, theirs = os.pipe()
    asked = time.monotonic_ns()
    child = os.fork()
    if child == 0:
        try:
            _child(source, theirs)
        finally:
            os._exit(0)
    os.close(theirs)
    first, _ = json.loads(os.read(answers, 1 << 16))
    answered = time.monotonic_ns()
    os.close(answers)
    os.waitpid(child, 0)
    return (first - asked) // 1000, (answered - asked) // 1000


def main() -> None:
    packages, file, count, *modules = sys.argv[1:]
    sys.path.insert(0, packages)
    for module in modules:
        importlib.import_module(module)
    source = Path(file).read_text()
    for _ in range(5):
        _sample(source)
    samples = [_sample(source) for _ in range(int(count))]
    first, answer = zip(*samples, strict=True)
    print(json.dumps({"first_line_us": first, "answer_us": answer}))


if __name__ == "__main__":
    main()
