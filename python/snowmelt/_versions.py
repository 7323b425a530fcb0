"""The versions of Python that functions ask for.

Invariant: a version is one of a function's requirements (`python==3.13`), so whatever travels or is
compared with them includes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import make

_VERSION = re.compile(r"\d+(\.\d+){1,2}")
_REQUIRED = re.compile(r"python\s*==\s*(\d+(?:\.\d+){1,2})(\.\*)?")


def with_version(packages: Sequence[str], version: str | None) -> list[str]:
    """The requirements with that of a version, `"3.13"`. Raises `TypeError` for another form."""
    if version is None:
        return list(packages)
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise TypeError(f'python={version!r} is not a version: write for example python="3.13"')
    return [*packages, f"python=={version}"]


def of_another(packages: Sequence[str]) -> str | None:
    """The version that the requirements name, if it is not that of this process. Its byte code is
    of no use there."""
    here = [str(part) for part in sys.version_info[:3]]
    for package in packages:
        found = _REQUIRED.fullmatch(package.strip())
        if found and (parts := found[1].split(".")) != here[: len(parts)]:
            return found[1]
    return None


def source_of(thing: Any, name: str, version: str) -> dict[str, Any]:
    """The wire `Code` of the file that defines a function, for another version. Raises
    `FunctionError` if the file alone does not define it."""
    plain = getattr(thing, "function", thing)
    module = sys.modules.get(getattr(plain, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if file is None or getattr(plain, "__qualname__", "") != name:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise make(
            "SM-0204",
            f"`{name}` asks for Python {version} and cannot be sent from Python {here}",
            hint=f"define `{name}` by this name at the top level of a file, whose source is sent "
            f"then, or run this program with Python {version}",
        )
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise make("SM-0204", f"the file of `{name}` cannot be read: {error}") from None
    return {"kind": "source", "file": file, "text": text}
