"""The tests of the C kernels on emulated CPUs, and counts of their instructions."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

HERE = Path(__file__).parent
COMPILER = "aarch64-linux-gnu-gcc"
QEMU = "qemu-aarch64"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O3", "-Wall", "-Wextra", "-Werror"]
FLAGS += [f"-I{ROOT / 'csrc'}", f"-I{HERE}"]
SOURCES = [HERE / "test_kernels.c", ROOT / "csrc" / "crc32c.c"]
FEATURES = [HERE / "cpu_features.c", "-Wl,--wrap=getauxval"]

# How csrc/crc_arm.h learns the features of the CPU, chosen by the compiler's macros.
LINUX: tuple[str, ...] = ()
MACOS = ("-U__linux__", "-D__APPLE__", f"-I{HERE / 'macos'}")
OTHER = ("-U__linux__",)
OTHER_WITH_ALL = (*OTHER, "-march=armv8.2-a+crc+crypto+sha3")
UBSAN = ("-fsanitize=undefined", "-fno-sanitize-recover=undefined", "-O1")

KERNELS = ("portable", "arm-crc32", "arm-pmull", "arm-sha3")
# The instructions that a kernel may run, and does for large messages.
INSTRUCTIONS = {
    "portable": (),
    "arm-crc32": ("crc32",),
    "arm-pmull": ("crc32", "pmull"),
    "arm-sha3": ("crc32", "pmull", "eor3"),
}
SIZES = (40, 160, 1024, 16384)
REPETITIONS = 200


@dataclass(frozen=True)
class Machine:
    """A CPU of QEMU, the system's answer to what it can, and the kernels that it can run."""

    name: str
    cpu: str
    kernels: tuple[str, ...]
    flags: tuple[str, ...] = LINUX
    allowed: str = "crc32 pmull sha3"


MACHINES = (
    Machine("Cortex-A53", "cortex-a53", KERNELS[:3]),
    Machine("Cortex-A72", "cortex-a72", KERNELS[:3]),
    Machine("Neoverse N1", "neoverse-n1", KERNELS[:3]),
    Machine("Neoverse V1", "neoverse-v1", KERNELS),
    Machine("all features", "max", KERNELS),
    Machine("all features, UBSan", "max", KERNELS, UBSAN),
    # QEMU has no CPU without them, but the system may not report them.
    Machine("without SHA3", "max", KERNELS[:3], allowed="crc32 pmull"),
    Machine("without PMULL", "max", KERNELS[:2], allowed="crc32 sha3"),
    Machine("without CRC32", "max", KERNELS[:1], allowed="pmull sha3"),
    Machine("macOS", "max", KERNELS, MACOS),
    Machine("macOS 11, which does not name PMULL", "max", KERNELS[:2], MACOS, "crc32 sha3"),
    Machine("another system", "max", KERNELS[:1], OTHER),
    Machine("another system, compiled for SHA3", "max", KERNELS, OTHER_WITH_ALL),
)


def compile_tests(output: Path, flags: Iterable[str] = LINUX) -> Path:
    """Compile `test_kernels.c` for ARM."""
    command = [COMPILER, *FLAGS, *flags, "-static", *map(str, SOURCES + FEATURES)]
    subprocess.run([*command, "-o", str(output)], check=True)
    return output


def emulated_cpus() -> set[str]:
    """Return the names of the CPUs that QEMU emulates."""
    # QEMU 7.2 lists them and returns 1.
    answer = subprocess.run([QEMU, "-cpu", "help"], capture_output=True, text=True, check=False)
    return set(answer.stdout.split())


def check_machine(machine: Machine, folder: Path) -> str:
    """Compile and run the tests; return a line about it."""
    program = compile_tests(folder / re.sub(r"\W+", "-", machine.name), machine.flags)
    found = tuple(_run_on(machine, program).split())
    if found != machine.kernels:
        raise AssertionError(f"{machine.name}: kernels {found}, not {machine.kernels}")
    correct = _run_on(machine, program, "test").count("correct")
    if correct != 2 * len(found) + 1:
        raise AssertionError(f"{machine.name}: {correct} parts of the test passed")
    return f"{machine.name}: {', '.join(found)}"


def _run_on(machine: Machine, program: Path, *arguments: str) -> str:
    result = subprocess.run(
        [QEMU, "-cpu", machine.cpu, str(program), *arguments],
        env=os.environ | {"ALLOWED_FEATURES": machine.allowed},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise AssertionError(f"{machine.name}: exit {result.returncode}: {result.stderr}")
    return result.stdout


def check_kernels(folder: Path) -> None:
    """Test the kernels on every machine that QEMU emulates."""
    folder.mkdir(parents=True, exist_ok=True)
    cpus = emulated_cpus()
    for machine in MACHINES:
        if machine.cpu not in cpus:
            print(f"{machine.name}: this QEMU does not emulate it")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check_machine, one, folder) for one in MACHINES if one.cpu in cpus]
        for job in jobs:
            print(job.result(), flush=True)


class InstructionCounter:
    """
    Counts the instructions of kernels, by a plugin of QEMU.

    Parameters
    ----------
    folder : Path
        Where to compile.
    """

    def __init__(self, folder: Path) -> None:
        self._program = compile_tests(folder / "counted")
        self._plugin = folder / "count_instructions.so"

    def load(self) -> bool:
        """Compile the plugin for this QEMU; return False if QEMU loads no plugins."""
        for version in range(1, 6):
            command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"]
            command += [f"-DPLUGIN_VERSION={version}", str(HERE / "count_instructions.c")]
            subprocess.run([*command, "-o", str(self._plugin)], check=True)
            if self._run("run", "crc32c", "portable", "8", "0").returncode == 0:
                return True
        return False

    def count(self, *work: str) -> dict[str, float]:
        """Return the numbers of instructions of one repetition."""
        many, none = (self._totals(*work, str(times)) for times in (REPETITIONS, 0))
        return {name: (many[name] - none[name]) / REPETITIONS for name in many}

    def _totals(self, *work: str) -> dict[str, int]:
        result = self._run("run", *work)
        match = re.fullmatch(r"counted (\d+) (\d+) (\d+) (\d+)\n", result.stderr)
        if match is None:
            raise AssertionError(f"{work}: {result.stderr}")
        return dict(zip(("all", "crc32", "pmull", "eor3"), map(int, match.groups()), strict=True))

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [QEMU, "-cpu", "max", "-plugin", str(self._plugin), str(self._program)]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def print_counts(folder: Path) -> None:
    """Print instructions per byte of every kernel, and check which ones it runs."""
    counter = InstructionCounter(folder)
    if not counter.load():
        print("This QEMU loads no plugins: instructions were not counted")
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        print("Instructions per byte of a message of   " + "".join(f"{s:>8} B" for s in SIZES))
        for table in ("crc32c", "crc32"):
            for kernel in KERNELS:
                work = [(table, kernel, str(size)) for size in SIZES]
                counts = list(pool.map(lambda one: counter.count(*one), work))
                _require_instructions(kernel, counts)
                per_byte = [one["all"] / size for one, size in zip(counts, SIZES, strict=True)]
                print(f"{table + ' by ' + kernel:<40}" + "".join(f"{n:>10.2f}" for n in per_byte))
    for what, name in (
        ("rows", "decoded"),
        ("fields", "decoded without NEON"),
        ("equals", "compared"),
    ):
        print(f"Instructions per header, {name}: {counter.count('header', what, '61')['all']:.0f}")


def _require_instructions(kernel: str, counts: list[dict[str, float]]) -> None:
    """Fail if a kernel runs instructions of other features, or not those that it is named after."""
    for one in counts:
        for name in ("crc32", "pmull", "eor3"):
            if one[name] > 0 and name not in INSTRUCTIONS[kernel]:
                raise AssertionError(f"{kernel} runs {name}")
    missing = [name for name in INSTRUCTIONS[kernel] if counts[-1][name] == 0]
    if missing:
        raise AssertionError(f"{kernel} does not run {missing}")
