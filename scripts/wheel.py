"""Adds programs to a pure wheel: they are installed as commands, and the wheel becomes
platform-specific.

python scripts/wheel.py PURE.whl TAG OUT PROGRAM...
"""

import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

RUNS = 0o100755


def digest(content: bytes) -> str:
    """The digest in the format of RECORD."""
    text = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={text.decode()}"


def entries(pure: Path, programs: list[Path], tag: str) -> dict[str, tuple[bytes, int]]:
    """Content and mode of every file but RECORD, by name."""
    with zipfile.ZipFile(pure) as archive:
        found = {
            item.filename: (archive.read(item), item.external_attr >> 16)
            for item in archive.infolist()
        }
    info = next(name.split("/")[0] for name in found if name.endswith(".dist-info/WHEEL"))
    del found[f"{info}/RECORD"]
    lines = found[f"{info}/WHEEL"][0].decode().splitlines()
    kept = [line for line in lines if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    head = "\n".join([*kept, "Root-Is-Purelib: false", f"Tag: {tag}", ""])
    found[f"{info}/WHEEL"] = (head.encode(), 0o100644)
    data = info.removesuffix(".dist-info")
    for program in programs:
        found[f"{data}.data/scripts/{program.name}"] = (program.read_bytes(), RUNS)
    rows = [f"{name},{digest(content)},{len(content)}" for name, (content, _) in found.items()]
    found[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,", ""]).encode(), 0o100644)
    return found


def main() -> None:
    pure, tag, out = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    programs = [Path(program) for program in sys.argv[4:]]
    name, version = pure.name.split("-")[:2]
    finished = out / f"{name}-{version}-{tag}.whl"
    unfinished = finished.with_suffix(".tmp")
    moment = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, (content, mode) in entries(pure, programs, tag).items():
            item = zipfile.ZipInfo(path, moment)
            item.external_attr = mode << 16
            archive.writestr(item, content, zipfile.ZIP_DEFLATED)
    unfinished.rename(finished)


if __name__ == "__main__":
    main()
