"""Turns what a handler returned into its value: runs a coroutine, and collects what a generator
yields.

Invariant: a thread has one event loop, for all calls that it serves, so that a client that a
handler keeps open (of HTTP, of a database) stays usable in the next call.
"""

from __future__ import annotations

import sys
import threading
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

_of_thread = threading.local()

_LAZY = (CoroutineType, GeneratorType, AsyncGeneratorType)


def value(returned: Any) -> Any:
    """The value of a call. Anything but a coroutine or generator is returned as it is."""
    # Nearly every value ends here.
    if not isinstance(returned, _LAZY):
        return returned
    if isinstance(returned, GeneratorType):
        return list(returned)
    if isinstance(returned, AsyncGeneratorType):
        return _run(_collected(returned))
    return _run(returned)


async def _collected(items: Any) -> list[Any]:
    return [item async for item in items]


def _run(awaitable: Any) -> Any:
    loop = getattr(_of_thread, "loop", None)
    if loop is None or loop.is_closed():
        # Takes 30 ms, and most functions need none.
        import asyncio

        loop = _of_thread.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(awaitable)
    finally:
        _cancel_rest(loop)


def _cancel_rest(loop: Any) -> None:
    """Ends the tasks that the call left behind: they would go on in the middle of another one."""
    asyncio = sys.modules["asyncio"]
    if loop.is_closed() or not (rest := asyncio.all_tasks(loop)):
        return
    for task in rest:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
