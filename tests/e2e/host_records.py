"""The records of connections between hosts (crates/rpc/src/host_stream), for proxies that change
what hosts say to each other and not only damage it."""

import struct
from collections.abc import Callable

PREFACE = b"\0snow\x01\r\n"
HEADER = struct.Struct("<III")
# CRC-32C, with its bits reversed.
POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes, sum: int = 0) -> int:
    sum ^= 0xFFFFFFFF
    for byte in data:
        sum ^= byte
        for _ in range(8):
            sum = sum >> 1 ^ (POLYNOMIAL if sum & 1 else 0)
    return sum ^ 0xFFFFFFFF


def rewriter(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """What changes the data in records of one direction; a part of a record waits for its rest."""
    waiting, number = b"", -1

    def rewritten(data: bytes) -> bytes:
        nonlocal waiting, number
        waiting, sent = waiting + data, b""
        if number < 0 and len(waiting) >= len(PREFACE):
            assert waiting.startswith(PREFACE)
            waiting, sent, number = waiting[len(PREFACE) :], PREFACE, 0
        while number >= 0 and len(waiting) >= HEADER.size:
            length = HEADER.unpack_from(waiting)[0]
            end = HEADER.size + length
            if len(waiting) < end:
                break
            record = change(waiting[HEADER.size : end])
            fields = struct.pack("<II", len(record), crc32c(record))
            check = crc32c(struct.pack("<Q", number) + fields)
            sent += fields + struct.pack("<I", check) + record
            waiting, number = waiting[end:], number + 1
        return sent

    return rewritten
