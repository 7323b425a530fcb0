"""Spark for tests: a session of this process, and a standalone cluster on loopback."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from conftest import wait_for

# Several programs of Java run at the same time: they are to start fast and to stay small.
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
WORKERS = 2


@contextmanager
def session(master: str = "local[1]", **settings: str) -> Iterator[Any]:
    """Ends the session, and the program of Java below it, which `stop` leaves."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()
        gateway = SparkContext._gateway
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        # It ends with its standard input.
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=60)


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers, each with one core."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as programs:
        master = [*here, "--port", str(port)]
        programs.enter_context(_daemon(folder / "master", "master.Master", master))
        wait_for("the master of Spark", lambda: _accepts(port))
        for n in range(WORKERS):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{n}")]
            worker = [*here, "--port", "0", *size, address]
            programs.enter_context(_daemon(folder / f"worker-{n}", "worker.Worker", worker))
        yield address


@contextmanager
def _daemon(log: Path, name: str, arguments: list[str]) -> Iterator[None]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA,
    }
    # It becomes the program of Java.
    command = [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with open(log, "wb") as output:
        program = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        program.terminate()
        try:
            program.wait(timeout=60)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
