"""The work of a child of a zygote after its set-up in its sandbox (SOCK 4.2).

It replaces the zygote's environment, import path and randomness with its own, and calls its entry.
State that must not be shared is made anew; the one exception, the interpreter's hash seed, is
described in `docs/explanation/sandbox.md`.
"""

import ctypes
import gc
import importlib
import os
import socket
import sys
from typing import Any

CHANNEL_FD = 3

# The modules of the entry of a function, if the zygote imported them.
RUNTIME, WARM_UP_CALL = "snowmelt._runtime.serve", "snowmelt._runtime.warm_up_call"

# After this many calls the interpreter has specialised its code; otherwise each child would do it.
WARM_UP_CALLS = 10

# Memory that a child needs, as address, bytes and advice (`fault_probe.py`).
touched: list[tuple[int, int, int]] = []
libc = ctypes.CDLL(None)

# The addresses of the states of numpy's global generator.
twisters: list[int] = []
# The listening socket of a child that was prepared before a request.
ready: list[socket.socket] = []
# Generators of numpy that the imports left, seeded by the system and not explicitly.
streams: list[Any] = []


class Twister(ctypes.Structure):
    """The state of a Mersenne twister in numpy; used up when `pos` is at the end of `key`."""

    _fields_ = (("key", ctypes.c_uint32 * 624), ("pos", ctypes.c_int))


def warm() -> None:
    """Prepares a child that is set up and has no request yet, so that its first call is fast."""
    try:
        for start, length, advice in touched:
            # Pages that this kernel does not populate are faulted in later, as usual.
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)
        reseed()
        warm_up()
        listener = socket.socket(fileno=CHANNEL_FD)
        if RUNTIME in sys.modules:
            importlib.import_module(RUNTIME).start_first_thread(listener)
        ready.append(listener)
    except BaseException:  # noqa: BLE001 it must not run with shared randomness
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def begin(entries: bytes) -> int:
    """Runs this child to its end, and returns the exit code of the process."""
    try:
        environment, paths, entry = parse(entries)
        refresh(environment, paths)
        pass_on(paths)
        if not ready:
            reseed()
    except BaseException:  # noqa: BLE001 as the interpreter does at its top
        sys.excepthook(*sys.exc_info())
        return 1
    return call(entry)


def parse(entries: bytes) -> tuple[dict[str, str], list[str], str]:
    """The environment, the folders for the import path, and the entry."""
    environment, paths, entry = {}, [], ""
    for field in os.fsdecode(entries).split("\0"):
        kind, text = field[:1], field[1:]
        if kind == "e":
            name, _, value = text.partition("=")
            environment[name] = value
        elif kind == "p":
            paths.append(text)
        elif kind == "c":
            entry = text
    return environment, paths, entry


def refresh(environment: dict[str, str], paths: list[str]) -> None:
    """Gives this process its own environment and import path."""
    for name in list(os.environ):
        if name not in environment:
            del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    sys.path[:0] = paths
    for path in paths:
        # The zygote may have cached another folder there, or none. Not invalidate_caches, which
        # imports a tenth of the standard library.
        sys.path_importer_cache.pop(path, None)


def pass_on(paths: list[str]) -> None:
    """Lets interpreters that this process starts import from the same folders, as those of Ray and
    of `subprocess` do. What the user has set comes first."""
    set_by_user = os.environ.get("PYTHONPATH")
    if found := [set_by_user, *paths] if set_by_user else paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(found)


def prepare() -> None:
    """Does work in the zygote once for all children: makes OpenSSL's generators, which takes 2 ms,
    and finds numpy's among all objects."""
    for _ in range(WARM_UP_CALLS):
        warm_up()
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_bytes(1)
    if "numpy.random.mtrand" in sys.modules:
        register_legacy(sys.modules["numpy.random.mtrand"])
    generators = sys.modules.get("numpy.random.bit_generator")
    if generators is None:
        return
    kind = generators.BitGenerator
    known = {id(stream) for stream in streams}
    for found in gc.get_objects():
        # Not isinstance, which asks an object for its class, and some objects run code to answer.
        if issubclass(type(found), kind) and id(found) not in known and is_system_seeded(found):
            streams.append(found)


def warm_up() -> None:
    """Runs the steps of `begin` with empty values, and a warm-up call of the platform's runtime."""
    environment, _, _ = parse(b"e_=_\0p/\0c:\0")
    refresh({**os.environ, **environment}, [])
    refresh({name: os.environ[name] for name in os.environ if name != "_"}, [])
    if WARM_UP_CALL in sys.modules:
        sys.modules[WARM_UP_CALL].run()


def register_legacy(legacy: Any) -> None:
    """Registers numpy's global generator, which computes for 340 us to seed itself from a few
    bytes: by its address, so that its whole state can be filled by the system."""
    legacy.seed()
    generator = legacy._rand._bit_generator
    if type(generator).__name__ == "MT19937":
        twisters.append(generator.ctypes.state_address)
    else:
        streams.append(generator)


def is_system_seeded(generator: Any) -> bool:
    """Whether it was seeded by the system, with 128 bits, and not with an explicit number."""
    sequence = getattr(generator, "_seed_seq", None)
    entropy = getattr(sequence, "entropy", None)
    return isinstance(entropy, int) and entropy >= 1 << 64


def reseed() -> None:
    """Gives each child its own randomness. The interpreter's `random` reseeds itself at a fork;
    others detect a fork by the process id, which is 1 in zygote and child."""
    if "ssl" in sys.modules:
        sys.modules["ssl"].RAND_add(os.urandom(32), 32.0)
    for stream in streams:
        stream.state = type(stream)().state
    for state in twisters:
        ctypes.memmove(state, os.urandom(Twister.pos.offset), Twister.pos.offset)
        Twister.from_address(state).pos = Twister.key.size // 4


def call(entry: str) -> int:
    """Calls the entry, `module:name` or `module:name.name`, and returns the exit code."""
    module, _, function = entry.partition(":")
    code = 0
    try:
        listener = ready.pop() if ready else socket.socket(fileno=CHANNEL_FD)
        target: Any = importlib.import_module(module)
        for name in function.split("."):
            target = getattr(target, name)
        target(listener)
    except SystemExit as end:
        code = exit_code(end.code)
    except BaseException:  # noqa: BLE001 as the interpreter does at its top
        sys.excepthook(*sys.exc_info())
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    return code


def exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
