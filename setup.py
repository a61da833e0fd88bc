"""
The compiled modules, and the links of the package's page. Everything else is in pyproject.toml.

KAFKASCAN_REPOSITORY is the address of the repository, such as a release's workflow knows it. Links
of the README become absolute with it; without it, they become text, as a page of a package index
has no files beside it.
"""

import os
import platform
import re
import sys
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The modules of kafkascan._core, and the C files that one of them is linked with.
MODULES: dict[str, list[str]] = {
    "batches": [],
    "census": [],
    "checksums": ["csrc/crc32c.c"],
    "cold_reads": [],
    "encoding": [],
    "fingerprints": [],
    "guard": ["csrc/fault_guard.c"],
    "indexes": [],
    "items": [],
    "layout": [],
    "legacy_message_sets": [],
    "markers": [],
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
    "typed_text": [],
    "typed_values": [],
    "unpacking": [],
}

# Cython's code for memoryviews, compiled once instead of once per module: it would be two thirds
# of what a module compiles.
SHARED_CODE = "kafkascan._core._cyutility"

C_HEADERS = [
    "csrc/avro.h",
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
    "csrc/damaged_ranges.h",
    "csrc/fault_guard.h",
    "csrc/java_text.h",
    "csrc/json_values.h",
    "csrc/kafka_layout.h",
    "csrc/kafka_status.h",
    "csrc/large_pages.h",
    "csrc/little_endian.h",
    "csrc/protobuf.h",
    "csrc/protobuf_json.h",
    "csrc/protobuf_wire.h",
    "csrc/quoted_text.h",
    "csrc/record.h",
    "csrc/result_blocks.h",
    "csrc/small_blocks.h",
    "csrc/typed_columns.h",
    "csrc/typed_text.h",
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

# KAFKASCAN_COVERAGE=1 builds for `make coverage`: each condition of csrc/ stays a branch.
if os.environ.get("KAFKASCAN_COVERAGE"):
    COMPILE_ARGS += ["-O0", "--coverage", "-fprofile-update=atomic", "-fprofile-filter-files=csrc/"]
    LINK_ARGS += ["--coverage", "-Wl,--undefined=__gcov_dump"]

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


ROOT = Path(__file__).parent
MAN_PAGES = sorted((ROOT / "docs" / "man").glob("*.1"))
# An image or a link to a file of the repository: ![label](docs/batches.svg), [label](docs/api.md).
FILE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def package_page(readme: str, files: str | None) -> str:
    """Return the README for a page that has no files beside it; `files` is the address of them."""

    def link(found: re.Match[str]) -> str:
        is_image, label, path = found.groups()
        if files is None:
            return "" if is_image else label
        address = f"{files}/{path}"
        return f"![{label}]({address}?raw=true)" if is_image else f"[{label}]({address})"

    return FILE_LINK.sub(link, readme)


def page_options() -> dict[str, object]:
    """Return the page and the addresses of the package, as arguments of `setup`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    repository = os.environ.get("KAFKASCAN_REPOSITORY", "").rstrip("/")
    files = f"{repository}/blob/v{project['version']}" if repository else None
    names = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
    urls = {name: f"{files}/{path}" for name, path in names.items()}
    return {
        "long_description": package_page((ROOT / "README.md").read_text("utf-8"), files),
        "long_description_content_type": "text/markdown",
        "project_urls": {"Repository": repository, **urls} if repository else {},
    }


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
        # `make wheel` writes them; other builds have none.
        data_files=[("share/man/man1", [f"docs/man/{one.name}" for one in MAN_PAGES])],
        cmdclass={"build_ext": CountingBuild},
        **page_options(),
        options={"build_ext": {"parallel": processes}},
    )
