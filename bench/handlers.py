"""Python handlers with numpy, pandas and scikit-learn, from each of the caches; their memory; a
thousand alive; a thousand at once.

Beside them a plain Python that imported the same and forks, and a plain Python that starts.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common import plots
from common.figures import Section, median, percentile, short, spread
from common.paths import BENCH, DATA, HELPER, scratch, shown

# Samples of each level; number of platforms for the first call of a platform.
COUNT, FIRST = 150, 3
PARTS = 20
ALIVE, BURST = 1000, 1000
# Time limit of a driver, on an otherwise idle machine.
TIMEOUT_S = 300

Row = dict[str, Any]

WORK = {
    "numpy": ("numpy", "int(numpy.arange(1000).sum())"),
    "pandas": ("pandas", "float(pandas.Series(range(100)).mean())"),
    "scikit-learn": (
        "sklearn.linear_model",
        "float(sklearn.linear_model.LinearRegression().fit([[0], [1], [2]], [0, 2, 4]).coef_[0])",
    ),
}

# The file and the handler take the time as their first step; the handler also takes it as its
# last step.
FILE = """import time

FIRST_LINE = time.monotonic_ns()

{imports}


def handler(hold):
    entered = time.monotonic_ns()
    answer = [{work}]
    if hold:
        time.sleep(hold)
    return [FIRST_LINE, entered, time.monotonic_ns(), answer]
"""


@dataclass(frozen=True)
class Case:
    """A handler and the packages that it needs."""

    name: str
    packages: tuple[str, ...]

    @property
    def requirements(self) -> list[str]:
        return [f"{package}=={VERSIONS[package]}" for package in self.packages]

    @property
    def modules(self) -> list[str]:
        return [WORK[package][0] for package in self.packages]

    def write(self, folder: Path) -> Path:
        """Its file."""
        # A name that does not shadow a package.
        file = folder / f"needs_{len(self.packages)}_from_{self.modules[0]}.py"
        imports = "\n".join(f"import {module}" for module in self.modules)
        work = ", ".join(WORK[package][1] for package in self.packages)
        file.write_text(FILE.format(imports=imports, work=work))
        return file


VERSIONS = {"numpy": version("numpy"), "pandas": version("pandas"), "scikit-learn": "1.9.1"}
CASES = [*(Case(name, (name,)) for name in WORK), Case("all three", tuple(WORK))]


class Bench:
    """Runs the drivers on files in one folder."""

    def __init__(self, section: Section, folder: Path) -> None:
        self.section = section
        self.folder = folder
        self.state = DATA / "bench/handlers"

    def drive(self, level: str, case: Case, count: int = 1, state: Path | None = None) -> Row:
        """The output of one driver."""
        file = case.write(self.folder)
        words = ["handlers", level, "--count", str(count)]
        words += [w for package in case.requirements for w in ("--package", package)]
        words += [w for module in case.modules for w in ("--import", module)]
        command = [str(HELPER), *words, "--state", str(state or self.state), "--file", str(file)]
        self.state.mkdir(parents=True, exist_ok=True)
        begun = time.perf_counter()
        done = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_S,
        )
        took = time.perf_counter() - begun
        print(f"{level}, needs {case.name}: {took:.1f} s", file=sys.stderr, flush=True)
        where = f"--state {shown(self.state) if state is None else 'EMPTY'} --file HANDLER"
        shown_command = " ".join([HELPER.name, *words, where])
        repeated = shown_command in self.section.commands
        if not repeated and (case is CASES[-1] or level in ("alive", "burst", "map")):
            self.section.commands.append(shown_command)
        return dict(json.loads(done.stdout))

    def cold(self, case: Case) -> Row:
        """With an empty state folder."""
        with scratch() as state:
            return self.drive("first", case, state=state)

    def installed(self, case: Case) -> Row:
        """The first call of several platforms, one after another, with installed packages."""
        rows = [self.drive("first", case) for _ in range(FIRST + 1)][1:]
        return {key: [value for row in rows for value in row[key]] for key in rows[0]}

    def packages(self, case: Case) -> Path:
        """The same packages for a plain Python, unpacked at the first use."""
        folder = DATA / "bench/plain" / "-".join(case.requirements)
        if not folder.is_dir():
            workspace = folder.with_suffix(".tmp")
            install = ["uv", "pip", "install", "-q", "--compile-bytecode", "--target"]
            subprocess.run([*install, str(workspace), *case.requirements], check=True)
            workspace.rename(folder)
        return folder

    def plain(self, case: Case, count: int) -> Row:
        """Bare forks of a plain Python."""
        words = [str(BENCH / "peers/fork.py"), str(self.packages(case))]
        words += [str(case.write(self.folder)), str(count), *case.modules]
        done = subprocess.run(
            [sys.executable, "-I", "-S", *words],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | SINGLE_THREADED,
        )
        return dict(json.loads(done.stdout))

    def process(self, case: Case) -> list[float]:
        """Milliseconds in which a plain Python starts, runs the handler's file and exits."""
        samples = []
        environment = os.environ | SINGLE_THREADED | {"PYTHONPATH": str(self.packages(case))}
        command = [sys.executable, "-S", str(case.write(self.folder))]
        for _ in range(FIRST + 1):
            begun = time.perf_counter()
            subprocess.run(command, check=True, env=environment)
            samples.append((time.perf_counter() - begun) * 1000)
        return samples[1:]


# As in a zygote: a process with threads cannot be forked safely.
SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass
class Found:
    """The measurements of one case: rows by level, in microseconds."""

    rows: dict[str, Row]
    process_ms: list[float]
    memory: Row


# By the name in the tables; the text above the tables explains them.
LEVELS = [
    "cold",
    "install cache",
    "import cache",
    "no preforked child",
    "handler cache",
    "prewarmed",
]


def measure(bench: Bench, case: Case) -> Found:
    """Bare forks before and after those of the zygote: the load of the machine may change."""
    rows = {"cold": bench.cold(case), "install cache": bench.installed(case)}
    before = bench.plain(case, COUNT // 2)
    rows["import cache"] = bench.drive("import", case, COUNT)
    rows["no preforked child"] = bench.drive("fork", case, COUNT)
    after = bench.plain(case, COUNT // 2)
    rows["bare fork"] = {key: [*before[key], *after[key]] for key in before}
    rows["handler cache"] = bench.drive("handler", case, COUNT)
    rows["prewarmed"] = bench.drive("prewarmed", case, COUNT)
    return Found(rows, bench.process(case), bench.drive("memory", case, PARTS))


def _ms(row: Row, key: str) -> list[float]:
    return [value / 1000 for value in row[key]]


def times(section: Section, found: dict[str, Found]) -> None:
    lines = []
    for name, case in found.items():
        for level in [*LEVELS, "bare fork"]:
            row = case.rows[level]
            first, answer = _ms(row, "first_line_us"), _ms(row, "answer_us")
            # A bare fork has no platform.
            platform = spread(_ms(row, "platform_us")) if "platform_us" in row else ""
            tail = short(percentile(answer, 99))
            lines.append([name, level, spread(first), spread(answer), tail, platform])
        lines.append([name, "python3 process", "", spread(case.process_ms), "", ""])
    head = ["needs", "", "first line, ms", "answer, ms", "p99", "answer but for the handler, ms"]
    section.table(head, lines)
    bars = {
        level: [median(_ms(case.rows[level], "answer_us")) for case in found.values()]
        for level in [*LEVELS, "bare fork"]
    }
    section.plot(
        "handlers",
        "Median from the request to the answer, by what the handler needs and what is cached",
        plots.bars("request to answer, ms (median)", list(found), bars),
    )


def memory(section: Section, found: dict[str, Found]) -> None:
    def mib(size: int) -> str:
        return f"{size / 2**20:.1f}"

    lines = [
        [name, *(mib(case.memory[f"{what}_bytes"]) for what in ("zygote", "running", "idle"))]
        for name, case in found.items()
    ]
    section.say(
        f"What one more instance holds, as its share of the proportional set size of {PARTS}: while"
        " its handler runs, and at rest after it was given back. The zygote column is spawner and"
        " zygotes without an instance."
    )
    section.table(["needs", "zygote, MiB", "running, MiB", "idle, MiB"], lines)


def promises(section: Section, found: dict[str, Found]) -> None:
    def of(case: Found, level: str, key: str) -> float:
        return median(_ms(case.rows[level], key))

    for name, case in found.items():
        ours, bare = (of(case, level, "first_line_us") for level in ("import cache", "bare fork"))
        section.promise(
            f"import-cache hit, handler with {name}, to its first line",
            "at most 1.5 times a bare fork",
            f"{ours / bare:.2f} times ({ours:.2f} ms against {bare:.2f})",
            ours <= 1.5 * bare,
        )
    for level, what, bar in (
        ("prewarmed", "a prewarmed instance", 0.5),
        ("handler cache", "an instance from the handler cache", 1.0),
    ):
        slowest = max(of(case, level, "platform_us") for case in found.values())
        whole = max(of(case, level, "answer_us") for case in found.values())
        section.promise(
            f"{what}, request to answer, the slowest of {len(found)} handlers",
            f"under {bar:g} ms",
            f"{slowest:.2f} ms, and {whole:.2f} ms with what the handler itself does",
            slowest < bar,
        )
    pandas = found["pandas"]
    ratio = median(pandas.process_ms) / of(pandas, "import cache", "answer_us")
    section.promise(
        "handler with pandas from its zygote against a Python process",
        "20 times faster",
        f"{ratio:.0f} times",
        ratio >= 20,
    )


def many(section: Section, bench: Bench) -> None:
    alive = bench.drive("alive", CASES[0], ALIVE)
    gib = [alive[f"{what}_bytes"] / 2**30 for what in ("machine", "pss")]
    section.say(
        f"{alive['instances']:,} instances of the numpy handler that have answered and live: the"
        f" machine has {gib[0]:.2f} GiB less to give; their proportional set size, with zygote and"
        f" spawner, is {gib[1]:.2f} GiB."
    )
    section.promise(
        f"{ALIVE:,} instances of a numpy handler alive",
        "under 8 GiB",
        f"{max(gib):.2f} GiB",
        max(gib) < 8,
    )
    lines = []
    for level, what in (("burst", "a request each"), ("map", "one request for all")):
        answer = sorted(_ms(bench.drive(level, CASES[0], BURST), "answer_us"))
        tail = [short(percentile(answer, 99)), short(answer[-1])]
        lines.append([what, short(answer[0]), spread(answer), *tail])
    section.say(
        f"A burst: {BURST:,} calls of the numpy handler at the same moment on {os.cpu_count()}"
        " cores, each answered by a fresh instance; milliseconds from that moment. One request for"
        " all is answered when every instance is there, and the calls begin then."
    )
    section.table(["instances are asked for", "first", "spread", "p99", "all"], lines)


def run() -> Section:
    section = Section("Python handlers on the caches")
    section.say(
        "*cold*: nothing is there; packages are resolved, downloaded, unpacked and compiled; one"
        " sample. *install cache*: a platform that has just started finds its packages unpacked and"
        " starts an interpreter that imports them. *import cache*: a fresh instance from"
        " a zygote that imported them, in a sandbox of its own, executes the handler's file;"
        " requests come 40 ms apart, so the zygote's preforked child, which knows nothing of the"
        " handler, serves them. *no preforked child*: the same where 8 requests come at once, of"
        " which one finds it."
        " *handler cache*: an idle instance is taken again. *prewarmed*: a fresh instance that was"
        " started before it was asked for, one of two that wait. *bare fork*: the same"
        " packages imported by a plain Python that calls `os.fork`, half of the samples before and"
        " half after ours; its first line is the child's. *python3 process*: a plain Python that"
        " executes the handler's file, files in memory, and ends. The last column leaves out what"
        " the handler itself needs from its first line to its last."
    )
    with scratch() as folder:
        bench = Bench(section, folder)
        found = {case.name: measure(bench, case) for case in CASES}
        times(section, found)
        memory(section, found)
        promises(section, found)
        many(section, bench)
    return section
