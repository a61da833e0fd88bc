"""Each CRC-32C kernel against RFC 3720, the crc32c package and itself in pieces."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import crc32c as crc32c_package
import numpy as np
import pytest

import kafkascan as ks
from kafkascan._core import checksums

KERNELS = ks.format.crc32c_implementations()

# RFC 3720, B.4, and the customary check value.
VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (
        # An iSCSI read command.
        bytes.fromhex(
            "01c00000000000000000000000000000"
            "14000000000004000000001400000018"
            "28000000000000000200000000000000"
        ),
        0xD9963A56,
    ),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.fixture(scope="module")
def noise() -> np.ndarray:
    # Aligned to 64 bytes, so that an offset is an alignment.
    raw = np.random.default_rng(3720).integers(0, 256, 1 << 17, np.uint8)
    shift = -raw.ctypes.data % 64
    return raw[shift : shift + 100_000]


def run(kernel: str, data: object, value: int = 0) -> int:
    crc, fault = checksums.crc32c(data, value, kernel)
    assert fault == -1
    return crc


def test_the_portable_kernel_always_exists_and_the_fastest_is_chosen() -> None:
    assert KERNELS[0] == "portable"
    if "KAFKASCAN_CRC32C" not in os.environ:
        assert ks.crc32c_implementation() == KERNELS[-1]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("data", "crc"), VECTORS)
def test_known_answers(kernel: str, data: bytes, crc: int) -> None:
    assert run(kernel, data) == crc
    assert ks.crc32c(data) == crc


@pytest.mark.parametrize("kernel", KERNELS)
def test_all_lengths_at_all_alignments(kernel: str, noise: np.ndarray) -> None:
    for alignment in range(64):
        for length in range(301):
            piece = noise[alignment : alignment + length]
            assert run(kernel, piece) == crc32c_package.crc32c(piece.tobytes())


@pytest.mark.parametrize("kernel", KERNELS)
def test_long_lengths(kernel: str, noise: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    lengths = [383, 384, 385, 391, 392, 767, 768, 769, 1151, 1152, 6143, 6144, 12288, 16000, 99_900]
    for length in [*lengths, *rng.integers(301, 99_000, 150).tolist()]:
        start = int(rng.integers(0, 64))
        piece = noise[start : start + length].tobytes()
        assert run(kernel, piece) == crc32c_package.crc32c(piece)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_crc_continues_another(kernel: str, noise: np.ndarray) -> None:
    whole = crc32c_package.crc32c(noise.tobytes())
    for cut in (0, 1, 7, 8, 100, 5000, 99_999, 100_000):
        assert run(kernel, noise[cut:], run(kernel, noise[:cut])) == whole
        assert ks.crc32c(noise[cut:], ks.crc32c(noise[:cut])) == whole


@pytest.mark.parametrize("kernel", [None, *checksums.crc32_implementations()])
def test_crc32_is_zlibs(kernel: str | None, noise: np.ndarray) -> None:
    for alignment in range(16):
        for length in [*range(301), 4096, 50_001]:
            piece = noise[alignment : alignment + length]
            assert checksums.crc32(piece, 0, kernel) == (zlib.crc32(piece), -1)
            assert checksums.crc32(piece, 123, kernel) == (zlib.crc32(piece, 123), -1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_crc32c_reads_only_the_message(kernel: str, page: np.ndarray) -> None:
    for length in [*range(600), *range(600, 4097, 13)]:
        for message in (page[:length], page[len(page) - length :]):
            assert run(kernel, message) == crc32c_package.crc32c(message.tobytes())


@pytest.mark.parametrize("kernel", checksums.crc32_implementations())
def test_crc32_reads_only_the_message(kernel: str, page: np.ndarray) -> None:
    for length in [*range(600), *range(600, 4097, 13)]:
        for message in (page[:length], page[len(page) - length :]):
            assert checksums.crc32(message, 0, kernel) == (zlib.crc32(message), -1)


def in_new_process(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import kafkascan; print(kafkascan.crc32c_implementation())"],
        env=os.environ | {"KAFKASCAN_CRC32C": name},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_environment_forces_a_kernel(kernel: str) -> None:
    assert in_new_process(kernel).stdout.strip() == kernel


def test_an_empty_name_forces_nothing() -> None:
    assert in_new_process("").stdout.strip() == KERNELS[-1]


def test_an_unknown_kernel_is_an_error_that_names_the_known_ones() -> None:
    result = in_new_process("quantum")
    assert result.returncode != 0
    assert "KAFKASCAN_CRC32C" in result.stderr
    assert "'quantum'" in result.stderr
    assert ", ".join(KERNELS) in result.stderr
