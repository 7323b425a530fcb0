"""Makes the state folder of a release, for `test_upgrade.py`.

    python tests/e2e/state_fixture.py FOLDER-OF-PROGRAMS tests/e2e/states/NAME.tar.xz

Run it as root with the programs of the release. The records are those of `platform_records.py`, and
beside them is what clients saw of them.
"""

import io
import json
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from cluster import join_token
from conftest import Snowmelt, short_folder, wait_for
from controls import free_port
from platform_records import make, seen

# Results, and calls that wait, are older than this when a test reads them.
KEPT = "3650d"


def main(programs: Path, target: Path) -> None:
    with short_folder() as folder:
        control = Snowmelt(folder, program=programs / "snowmelt")
        listen = f"127.0.0.1:{free_port()}"
        control.run("up", "--listen", listen, "--name", "one").succeeded()
        join = ["--join", join_token(control), "--name", "two"]
        address = ["--control", listen, "--address", f"127.0.0.1:{free_port()}"]
        host = subprocess.Popen(
            [str(control.program), "node", *address, *join],
            env=control.environ() | {"SNOWMELT_STATE": str(folder / "second")},
        )
        try:
            wait_for("the host", lambda: '"two"' in control.run("hosts", "-o", "json").out)
            control.run("hosts", "drain", "two").succeeded()
            made = make(control, folder, time.time() + 45, KEPT)
            known = {"made": asdict(made), "seen": seen(control, replace(made, burst=""))}
        finally:
            control.run("down", "--grace", "0s").succeeded()
            host.send_signal(signal.SIGTERM)
            host.wait(30)
        text = json.dumps(known, indent=1).encode()
        with tarfile.open(target, "w:xz") as archive:
            archive.add(folder / "state/state.redb", "state.redb")
            about = tarfile.TarInfo("seen.json")
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text))
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
