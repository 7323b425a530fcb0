"""`python -m snowmelt`: the command line, which is the binary."""

from __future__ import annotations

import os
import sys

from . import _binary
from .errors import Error


def main() -> None:
    """Executes the binary, with the same arguments."""
    try:
        binary = _binary.find()
    except Error as error:
        sys.exit(str(error))
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
