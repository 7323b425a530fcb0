"""A function in a language without a runtime of its own, as docs/reference/runtimes.md has it."""

_LOOP = """listener = socket.socket(fileno=int(os.environ["SNOWMELT_CHANNEL_FD"]))
while True:
    connected, _ = listener.accept()
    stream = connected.makefile("rwb")
    while header := stream.read(8):
        length, kind = struct.unpack("<IB3x", header)
        message = json.loads(stream.read(length))
        text = json.dumps({} if kind == 1 else answer(message["event"])).encode()
        stream.write(struct.pack("<IB3x", len(text), 2 if kind == 1 else 4) + text)
        stream.flush()
"""


def program(body: str) -> str:
    """Serves calls by the function `answer(event)` that the body defines."""
    return f"#!/usr/bin/python3\nimport json, os, socket, struct\n{body}{_LOOP}"
