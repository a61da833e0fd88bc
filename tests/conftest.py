"""What every report of a test run should say."""

from __future__ import annotations

import platform

import numpy as np

import kafkascan as ks


def pytest_report_header() -> str:
    return (
        f"kafkascan {ks.__version__}, numpy {np.__version__}, {platform.machine()},"
        f" CRC-32C by {ks.crc32c_implementation()} of {', '.join(ks.crc32c_implementations())}"
    )
