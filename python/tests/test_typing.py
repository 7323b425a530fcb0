"""What a type checker says about programs that use the package."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
PROGRAM = """
import snowmelt as sm

@sm.udf(batch="panda")
def misspelt(x: int) -> int:
    return x

@sm.udf(batch="pandas")
def right(x: int) -> int:
    return x
"""


def test_a_batch_form_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    configuration = tmp_path / "mypy.ini"
    # The package itself is checked elsewhere.
    configuration.write_text("[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", configuration, program],
        env={"MYPYPATH": str(PACKAGE), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and "program.py:4" in errors[0], done.stdout + done.stderr
