"""The compiled modules. Everything else about the package is in pyproject.toml."""

import os
import platform
import sys

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The modules of kafkascan._core, and the C files that one of them is linked with.
MODULES: dict[str, list[str]] = {
    "batches": [],
    "census": [],
    "checkpoint_lines": [],
    "checksums": ["csrc/crc32c.c"],
    "cold_reads": [],
    "dumped_batches": [],
    "encoding": [],
    "fingerprints": [],
    "gzip_members": [],
    "guard": ["csrc/fault_guard.c"],
    "indexes": [],
    "items": [],
    "layout": [],
    "markers": [],
    "message_columns": [],
    "packing": [],
    "plain_batches": [],
    "producers": [],
    "record_columns": [],
    "record_headers": [],
    "records": [],
    "restamping": [],
    "result_blocks": [],
    "screening": [],
    "search": [],
    "text_lines": [],
    "unpacking": [],
    "wrappers": [],
}

# Cython's code for memoryviews, compiled once instead of once per module: it would be two thirds
# of what a module compiles.
SHARED_CODE = "kafkascan._core._cyutility"

C_HEADERS = [
    "csrc/batch_chains.h",
    "csrc/batch_row.h",
    "csrc/batch_search.h",
    "csrc/bytes_16.h",
    "csrc/cold_reads.h",
    "csrc/compressed.h",
    "csrc/crc32c.h",
    "csrc/crc_arm.h",
    "csrc/crc_kernels.h",
    "csrc/crc_ranges.h",
    "csrc/crc_streams.h",
    "csrc/crc_x86.h",
    "csrc/dumped_batches.h",
    "csrc/fault_guard.h",
    "csrc/java_text.h",
    "csrc/kafka_layout.h",
    "csrc/kafka_status.h",
    "csrc/large_pages.h",
    "csrc/message_program.h",
    "csrc/little_endian.h",
    "csrc/record.h",
    "csrc/result_blocks.h",
    "csrc/small_blocks.h",
    "csrc/small_members.h",
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
if sys.byteorder == "big":
    raise SystemExit("kafkascan does not support big-endian CPUs")


class CountingBuild(build_ext):
    """Compiles, and counts the modules on a terminal: they take a minute."""

    def build_extension(self, ext: Extension) -> None:
        super().build_extension(ext)
        self.compiled = getattr(self, "compiled", 0) + 1
        if sys.stderr.isatty():
            is_last = self.compiled == len(self.extensions)
            print(f"\r  {self.compiled} of {len(self.extensions)} modules", file=sys.stderr,
                  end="\n" if is_last else "", flush=True)  # fmt: skip


# Processes that translate import this file, where the platform does not fork.
if __name__ == "__main__":
    extensions = [
        Extension(
            f"kafkascan._core.{name}",
            [f"kafkascan/_core/{name}.pyx", *sources],
            include_dirs=["csrc"],
            depends=C_HEADERS,
            extra_compile_args=COMPILE_ARGS,
            extra_link_args=LINK_ARGS,
        )
        for name, sources in MODULES.items()
    ]
    extensions.append(
        Extension(SHARED_CODE, [], extra_compile_args=COMPILE_ARGS, extra_link_args=LINK_ARGS)
    )
    # The Makefile compiles by `build_ext --inplace`. Its editable install only links the
    # folder, where pip would compile every module a second time.
    if os.environ.get("KAFKASCAN_NO_EXTENSIONS"):
        extensions = []
    processes = os.cpu_count() or 1
    setup(
        ext_modules=cythonize(
            extensions,
            build_dir="build/cython",
            nthreads=processes,
            quiet="-q" in sys.argv,
            shared_utility_qualified_name=SHARED_CODE,
            compiler_directives={
                "language_level": 3,
                "boundscheck": False,
                "wraparound": False,
                "initializedcheck": False,
                "freethreading_compatible": True,
            },
        ),
        cmdclass={"build_ext": CountingBuild},
        options={"build_ext": {"parallel": processes}},
    )
