"""
Fuzz the C loops: build the targets, cut their inputs out of golden files, run them.

    python -m tests.fuzz.run --seconds 60

libFuzzer drives the targets if a clang with it is installed (Debian: `clang` and
`libclang-rt-*-dev`). Otherwise `standalone_driver.c` mutates the inputs at random.
AddressSanitizer and UndefinedBehaviorSanitizer are on in both cases. An input that fails is kept
in the build folder.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.corpus import TARGETS, write_corpora
from tests.support.paths import ROOT

HERE = Path(__file__).parent
FLAGS = [
    *("-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror"),
    *("-fno-sanitize-recover=all", f"-I{ROOT / 'csrc'}", f"-I{HERE}"),
]
LARGEST_INPUT = 1 << 16
# What a target may take to end after its time is over.
GRACE_SECONDS = 60


@dataclass(frozen=True)
class Toolchain:
    """A compiler, and whether it has libFuzzer."""

    compiler: str
    has_libfuzzer: bool

    @property
    def name(self) -> str:
        return f"libFuzzer of {self.compiler}" if self.has_libfuzzer else "the standalone driver"


def find_toolchain(folder: Path) -> Toolchain:
    """Return the first clang that links libFuzzer, or the C compiler without it."""
    probe = folder / "probe.c"
    probe.write_text("int LLVMFuzzerTestOneInput(const char *d, long n) { return d == 0 && n; }\n")
    for compiler in [os.environ.get("CLANG", "clang"), *_versioned_clangs()]:
        command = [compiler, "-fsanitize=fuzzer,address", str(probe), "-o", str(folder / "probe")]
        if shutil.which(compiler) and subprocess.run(command, capture_output=True).returncode == 0:
            return Toolchain(compiler, has_libfuzzer=True)
    return Toolchain(os.environ.get("CC", "cc"), has_libfuzzer=False)


def _versioned_clangs() -> list[str]:
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    names = {path.name for folder in folders for path in folder.glob("clang-*")}
    versions = [int(name[6:]) for name in names if re.fullmatch(r"clang-\d+", name)]
    return [f"clang-{version}" for version in sorted(versions, reverse=True)]


def build(target: str, folder: Path, toolchain: Toolchain) -> None:
    """Compile a target to `folder / target-fuzzer`."""
    sources = [HERE / f"fuzz_{target}.c", ROOT / "csrc" / "crc32c.c"]
    sanitizers = "address,undefined"
    if toolchain.has_libfuzzer:
        sanitizers += ",fuzzer"
    else:
        sources.append(HERE / "standalone_driver.c")
    output = folder / f"{target}-fuzzer"
    command = [
        toolchain.compiler,
        *FLAGS,
        f"-fsanitize={sanitizers}",
        *map(str, sources),
    ]
    subprocess.run([*command, "-o", str(output)], check=True)


def run(target: str, folder: Path, toolchain: Toolchain, seconds: float, seed: int) -> str | None:
    """Run a target for some seconds; return what went wrong, or None."""
    program, inputs = str(folder / f"{target}-fuzzer"), str(folder / "corpus" / target)
    failed = f"{folder}/{target}-failed-"
    if toolchain.has_libfuzzer:
        (folder / "found" / target).mkdir(parents=True)
        command = [program, f"-max_total_time={max(1, round(seconds))}", f"-seed={seed}"]
        command += [f"-max_len={LARGEST_INPUT}", f"-artifact_prefix={failed}", "-timeout=10"]
        command += ["-rss_limit_mb=1024", "-print_final_stats=1"]
        command += [str(folder / "found" / target), inputs]
    else:
        command = [program, inputs, str(seconds), str(seed), f"{failed}input"]
    environment = os.environ | {"ASAN_OPTIONS": "abort_on_error=1:detect_leaks=0"}
    log = folder / f"{target}.txt"
    with log.open("w") as output:
        ended = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            timeout=seconds + GRACE_SECONDS,
        )
    text = log.read_text(errors="replace")
    if ended.returncode != 0:
        return f"{target}: failed; input: {failed}*\n{text[-3000:]}"
    runs = re.search(r"Done (\d+) runs|number_of_executed_units: (\d+)", text)
    if runs is None:
        return f"{target}: the fuzzer did not say how many inputs it ran\n{text[-3000:]}"
    coverage = re.findall(r"cov: (\d+)", text)[-1:]
    print(
        f"{target}: {int(runs[1] or runs[2]):,} inputs",
        *(f"{n} edges" for n in coverage),
        flush=True,
    )
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and run all targets; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="time for each target")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--standalone", action="store_true", help="do not use libFuzzer")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.build, ignore_errors=True)
    options.build.mkdir(parents=True)
    write_corpora(options.build / "corpus")
    toolchain = find_toolchain(options.build)
    if options.standalone:
        toolchain = Toolchain(os.environ.get("CC", "cc"), has_libfuzzer=False)
    elif not toolchain.has_libfuzzer:
        print("No clang with libFuzzer is installed: inputs are mutated without coverage")
    print(f"Fuzzing with {toolchain.name}, {options.seconds:g} s for each target")

    def build_and_run(target: str) -> str | None:
        build(target, options.build, toolchain)
        return run(target, options.build, toolchain, options.seconds, options.seed)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [error for error in pool.map(build_and_run, TARGETS) if error is not None]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
