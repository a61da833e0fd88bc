"""The compiled floor. Everything else about the package is in pyproject.toml."""

import os
import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup

C_SOURCES = {
    "guard": ["csrc/fault_guard.c"],
    "layout": [],
    "markers": [],
    "memory": [],
    "batches": [],
    "checksums": ["csrc/crc32c.c"],
    "records": [],
    "restamping": [],
    "unpacking": [],
    "packing": [],
    "items": [],
    "encoding": [],
    "indexes": [],
    "index_screening": [],
    "fingerprints": [],
    "producers": [],
    "census": [],
    "screening": [],
    "search": [],
}

C_HEADERS = [
    "csrc/batch_chains.h",
    "csrc/batch_row.h",
    "csrc/batch_search.h",
    "csrc/compressed.h",
    "csrc/crc32c.h",
    "csrc/crc_kernels.h",
    "csrc/crc_ranges.h",
    "csrc/crc_x86.h",
    "csrc/fault_guard.h",
    "csrc/kafka_layout.h",
    "csrc/kafka_status.h",
    "csrc/record.h",
    "csrc/varint.h",
    "csrc/write_batch.h",
]

COMPILE_ARGS = ["-std=c11", "-D_GNU_SOURCE", "-O3", "-g0", "-fvisibility=hidden"]
LINK_ARGS: list[str] = []

# Every x86-64 CPU since 2011 has SSSE3; NumPy's own wheels ask for more.
if platform.machine() in ("x86_64", "AMD64"):
    COMPILE_ARGS += ["-mssse3"]

# KAFKASCAN_SANITIZE=1 builds for `make asan`.
if os.environ.get("KAFKASCAN_SANITIZE"):
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    COMPILE_ARGS += ["-O1", "-g", "-fno-omit-frame-pointer", *sanitizers]
    LINK_ARGS += sanitizers

if sys.platform == "win32":
    raise SystemExit("kafkascan does not build on Windows: its C needs GCC or Clang, and POSIX")

extensions = [
    Extension(
        f"kafkascan._core.{name}",
        [f"kafkascan/_core/{name}.pyx", *sources],
        include_dirs=["csrc"],
        depends=C_HEADERS,
        extra_compile_args=COMPILE_ARGS,
        extra_link_args=LINK_ARGS,
    )
    for name, sources in C_SOURCES.items()
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "freethreading_compatible": True,
        },
    )
)
