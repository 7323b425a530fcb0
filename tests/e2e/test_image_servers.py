"""Servers of Debian packages, as they are: their folders, and HTTP between functions of a burst."""

import json
import subprocess
from pathlib import Path

from conftest import PYTHON as SDK
from conftest import Snowmelt
from images import PYTHON

WEB = """import pathlib, subprocess

CONF = '''pid /tmp/nginx.pid; events {}
http { server { listen unix:/tmp/web.sock; } }'''

def handler(event):
    conf = pathlib.Path("/tmp/nginx.conf")
    conf.write_text(CONF)
    tested = subprocess.run(["/usr/sbin/nginx", "-t", "-c", conf], capture_output=True, text=True)
    if tested.returncode:
        raise RuntimeError(tested.stderr)
    return sorted(path.name for path in pathlib.Path("/var/log/nginx").iterdir())
"""


def test_a_server_of_packages_has_the_writable_folders_that_it_needs(
    alone: Snowmelt, tmp_path: Path
) -> None:
    parts = ",".join((*PYTHON, "nginx-light"))
    alone.run("image", "build", "web:v1", "--debian", parts, timeout=600).succeeded()
    code = tmp_path / "web.py"
    code.write_text(WEB)
    deploy = ("fn", "deploy", "web", code, "--image", "web:v1")
    alone.run(*deploy).succeeded()
    alone.run("fn", "call", "web").failed_with("SM-0201", "/var/l")
    folders = ("--writable", "/var/lib/nginx", "--writable", "/var/log/nginx")
    alone.run(*deploy, *folders).succeeded()
    logs = json.loads(alone.run("fn", "call", "web").succeeded().out)
    assert logs == ["access.log"]
    shown = alone.run("fn", "show", "web").succeeded().out
    assert "writable     /var/lib/nginx /var/log/nginx" in shown
    alone.run(*deploy, "--writable", "/none").failed_with("SM-0206", "/none", "--writable")
    alone.run(*deploy, "--writable", "/proc/x").failed_with("SM-0110", "/proc/x")
    alone.run("fn", "deploy", "own", code, "--writable", "/var").failed_with("SM-0110", "image")


# The first rank runs the server, as its packages have configured it; the second is its client.
BURST = """import subprocess, urllib.error, urllib.request
import snowmelt as sm

def handler(event):
    job = sm.job()
    if job.rank == 0:
        server = subprocess.Popen(["/usr/sbin/nginx", "-g", "daemon off;"])
        job.listen(5000).accept()
        pid = int(open("/run/nginx.pid").read())
        server.terminate()
        log = open("/var/log/nginx/access.log").read()
        return [server.wait(), pid == server.pid, "GET /" in log]
    job.connect(0, 80).close()
    try:
        status = urllib.request.urlopen("http://rank-0.job/").status
    except urllib.error.HTTPError as error:
        status = error.code     # There is no page.
    job.connect(0, 5000)
    return status
"""


def test_a_web_server_answers_in_a_burst_with_a_network(alone: Snowmelt, tmp_path: Path) -> None:
    parts = ",".join((*PYTHON, "nginx-light"))
    alone.run("image", "build", "web:v1", "--debian", parts, timeout=600).succeeded()
    code = tmp_path / "web.py"
    code.write_text(BURST)
    folders = [
        f"--writable={name}" for name in ("/var/lib/nginx", "/var/log/nginx", "/run", "/tmp")
    ]
    alone.run("fn", "deploy", "web", code, "--image", "web:v1", *folders).succeeded()
    done = alone.run("fn", "burst", "web", "-n", "2", "--network").succeeded()
    ranks = [json.loads(line)["result"] for line in done.out.splitlines()]
    assert ranks == [[0, True, True], 404]
    command = ("--command", "/usr/sbin/nginx -g 'daemon off;'", *folders)
    # Alone it finds no internet sockets, and says so.
    ended = alone.run("fn", "deploy", "own", "--image", "web:v1", *command)
    ended.failed_with("SM-0210", "Address family not supported", "SNOWMELT_CHANNEL_FD")


IN_PYTHON = """
import snowmelt as sm

@sm.function(image="web:v1", writable=["/run"])
def writes(event):
    open("/run/x", "w").write("written")
    return open("/run/x").read()

print(writes.remote(None), sm.map(writes, [1]))
"""


def test_functions_of_a_program_run_in_an_image_with_writable_folders(alone: Snowmelt) -> None:
    alone.run("up").succeeded()
    alone.run("image", "build", "web:v1", "--debian", ",".join(PYTHON), timeout=600).succeeded()
    # Byte code is for one version of Python: that of the packages.
    done = subprocess.run(
        ["/usr/bin/python3", "-c", IN_PYTHON],
        env=alone.environ() | {"PYTHONPATH": str(SDK)},
        capture_output=True,
        text=True,
    )
    alone.run("down")
    assert done.stdout == "written ['written']\n", done.stderr
