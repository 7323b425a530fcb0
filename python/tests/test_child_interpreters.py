"""Interpreters that a function starts import what the function can import."""

import os
import subprocess
import sys
from pathlib import Path

from peer import Instance

RUNTIME = Path(__file__).resolve().parents[1] / "snowmelt" / "_runtime"

# As the zygote does: the channel is descriptor 3, and the interpreter is isolated.
BEGIN = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import enter
del sys.path[0]
pair = socket.socketpair()
os.dup2(pair[0].fileno(), 3)
sys.exit(enter.begin(os.fsencode(sys.argv[2].replace("|", chr(0)))))
"""

ENTRY = """
import os, subprocess, sys

def run(channel):
    code = "import the_package; print(the_package.__file__)"
    subprocess.run([sys.executable, "-c", code], check=True)
    print(os.environ["PYTHONPATH"], flush=True)
"""


def begin(entries: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", BEGIN, str(RUNTIME), entries],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_a_child_interpreter_finds_the_packages_behind_what_the_user_has_set(
    tmp_path: Path,
) -> None:
    packages, own = tmp_path / "packages", tmp_path / "own"
    for folder in (packages, own):
        folder.mkdir()
        (folder / "the_package.py").write_text("")
    (packages / "the_entry.py").write_text(ENTRY)
    entry = f"p{packages}|cthe_entry:run"
    assert begin(entry)[:2] == [f"{packages}/the_package.py", str(packages)]
    found = begin(f"ePYTHONPATH={own}|{entry}")
    assert found[:2] == [f"{own}/the_package.py", f"{own}{os.pathsep}{packages}"]


def test_a_child_interpreter_finds_the_files_of_a_folder(own_instance: Instance) -> None:
    handler = """
    import subprocess, sys

    def handler(event):
        code = "import other; print(other.VALUE)"
        return subprocess.check_output([sys.executable, "-c", code], text=True)
    """
    code = own_instance.in_folder("app.py", app=handler, other="VALUE = 42")
    assert own_instance.call(code, None) == "42\n"
