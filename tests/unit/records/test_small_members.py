"""Small gzip members and their deflate blocks, bit by bit (RFC 1951), beside zlib."""

from __future__ import annotations

import struct
import zlib

import pytest

from kafkascan._core.gzip_members import decompress_small_members

HEADER = b"\x1f\x8b\x08" + bytes(7)
FIXED, DYNAMIC = "10", "01"  # bits of the kind, the lowest first


def number(value: int, bits: int) -> str:
    return "".join(str(value >> bit & 1) for bit in range(bits))


def as_bytes(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))


def codes_of(lengths: dict[int, int]) -> dict[int, str]:
    """Return the canonical codes of symbols with given lengths."""
    codes, code, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in lengths.items()):
        code <<= length - before
        codes[symbol] = format(code, f"0{length}b")
        code, before = code + 1, length
    return codes


# The code of the lengths: 13 symbols of 4 bits and 6 of 5 bits. Their order in a block is odd.
LENGTHS = codes_of({symbol: 4 if symbol < 13 else 5 for symbol in range(19)})
ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]


def zeros(times: int) -> str:
    """Return as many zeros, 11 to 138, by the symbol 18."""
    return LENGTHS[18] + number(times - 11, 7)


def dynamic(lengths: str, *, literals: int = 257, distances: int = 1, data: str = "") -> str:
    head = number(literals - 257, 5) + number(distances - 1, 5) + number(19 - 4, 4)
    head += "".join(number(len(LENGTHS[symbol]), 3) for symbol in ORDER)
    return "1" + DYNAMIC + head + lengths + data


def member(bits: str, content: bytes) -> bytes:
    return HEADER + as_bytes(bits) + struct.pack("<II", zlib.crc32(content), len(content))


# "a" and the end of a block, with codes of one bit.
SHORT = zeros(97) + LENGTHS[1] + zeros(138) + zeros(20) + LENGTHS[1]
# "a": 0, the end: 10, a match of three bytes: 11. A single distance, 1, whose code is 0.
MATCH = zeros(97) + LENGTHS[1] + zeros(138) + zeros(20) + LENGTHS[2] * 2 + LENGTHS[1]
# "a" to "g" and the end, with codes of three bits: 16 repeats a length, 17 repeats zeros.
REPEATED = zeros(97) + LENGTHS[3] + LENGTHS[16] + number(6 - 3, 2)
REPEATED += zeros(138) + LENGTHS[17] + number(10 - 3, 3) + LENGTHS[0] * 4 + LENGTHS[3]
NO_DISTANCE = LENGTHS[0]


@pytest.mark.parametrize(
    ("bits", "content"),
    [
        (dynamic(SHORT + NO_DISTANCE, data="000" + "1"), b"aaa"),
        (dynamic(REPEATED + NO_DISTANCE, data="000" + "001" + "110" + "111"), b"abg"),
        (dynamic(MATCH, literals=258, data="0" + "11" + "0" + "10"), b"aaaa"),
    ],
)
def test_dynamic_codes_are_decoded(bits: str, content: bytes) -> None:
    data = member(bits, content)
    assert zlib.decompress(data, 31) == content
    assert decompress_small_members(data, 0) == (content, len(data))


@pytest.mark.parametrize(
    "bits",
    [
        pytest.param(dynamic(LENGTHS[16] + "00" + SHORT), id="a repetition of no length"),
        pytest.param(dynamic(SHORT + NO_DISTANCE * 31, distances=31), id="31 distances"),
        pytest.param(
            dynamic(zeros(97) + LENGTHS[1] * 2 + zeros(138) + zeros(20) + NO_DISTANCE),
            id="no end of the block",
        ),
        pytest.param(
            dynamic(zeros(97) + LENGTHS[2] + zeros(138) + zeros(20) + LENGTHS[2] + NO_DISTANCE),
            id="unused codes of two bits",
        ),
        pytest.param(dynamic(SHORT + LENGTHS[2]), id="unused distances of two bits"),
        pytest.param(dynamic(SHORT + NO_DISTANCE * 31, literals=287), id="287 literals"),
        pytest.param(
            "1" + DYNAMIC + number(0, 5) * 2 + number(15, 4) + number(1, 3) * 19,
            id="no code of lengths",
        ),
        pytest.param(
            dynamic(MATCH, literals=258, data="0" + "11" + "1" + "10"), id="no such distance"
        ),
        pytest.param(
            dynamic(zeros(138) + zeros(118) + LENGTHS[1] + NO_DISTANCE, data="1"),
            id="no such literal",
        ),
    ],
)
def test_blocks_that_zlib_refuses_are_left_to_libraries(bits: str) -> None:
    data = member(bits, b"")
    with pytest.raises(zlib.error, match=r"invalid|too many"):
        zlib.decompress(data, 31)
    assert decompress_small_members(data, 0) == (b"", 0)


@pytest.mark.parametrize(
    "data",
    [
        # 10 bits of a block that is not the last, and 54 of literals: no bit is left for the next.
        pytest.param(
            HEADER + as_bytes("0" + FIXED + "110010000" * 6 + "0" * 7), id="after a block"
        ),
        pytest.param(
            HEADER + b"\0\5\0\xfa\xffabcde" + b"\1\5\0", id="in the size of a stored block"
        ),
        pytest.param(HEADER + as_bytes(dynamic(SHORT + NO_DISTANCE))[:12], id="in the lengths"),
        pytest.param(b"\x1f\x8b\x08\x08" + bytes(6) + b"name of a file", id="in a name"),
        pytest.param(b"\x1f\x8b\x08\x0a" + bytes(6) + b"of a file\0", id="before a checksum"),
    ],
)
def test_truncated_members_are_left_to_libraries(data: bytes) -> None:
    reader = zlib.decompressobj(31)
    reader.decompress(data)
    assert not reader.eof
    assert decompress_small_members(data, 0) == (b"", 0)
