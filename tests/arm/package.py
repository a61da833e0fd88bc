"""The package on emulated ARM: an arm64 root, wheels, cross-compiled modules, pytest.

Nothing is installed on the machine and nothing needs binfmt_misc. `python` of the environment is
a script that runs QEMU with the root's interpreter, and Python takes the script's name for its own:
`sys.executable` is the script, so that tests start other processes under emulation, too. Compilers
are started natively.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.arm.kernels import COMPILER, QEMU
from tests.support.paths import ROOT

# Of the distribution: Python, its headers, and what NumPy's wheels are linked with.
DEBIAN_PACKAGES = ("python3", "libpython3-dev", "libstdc++6")
# Of Debian 12 and of distributions that are newer or a few years older.
GLIBC_VERSIONS = (17, 24, 26, 27, 28, 31, 34, 35)
# Extras whose packages the tests import. Of `dev`, packages with exact versions are for lint.
EXTRAS = ("arrow", "pandas", "polars", "cli", "report")


@dataclass(frozen=True)
class Environment:
    """
    Folders below one that git ignores.

    Parameters
    ----------
    folder : Path
        Absolute.
    """

    folder: Path

    @property
    def root(self) -> Path:
        """Return the folder of the unpacked distribution."""
        return self.folder / "root"

    @property
    def venv(self) -> Path:
        """Return the folder of the virtual environment."""
        return self.folder / "venv"

    @property
    def python(self) -> Path:
        """Return the script that runs Python under emulation."""
        return self.venv / "bin" / "python"

    @property
    def run(self) -> Path:
        """Return the folder of the compiled package and the tests."""
        return self.folder / "run"

    def python_name(self) -> str:
        """Return the name of the root's interpreter with its version, such as python3.11."""
        return (self.root / "usr/bin/python3").readlink().name


def create_environment(environment: Environment) -> None:
    """Download and unpack what is missing; a file in each folder records what is there."""
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    root_content = " ".join([suite, *DEBIAN_PACKAGES])
    if _content(environment.root) != root_content:
        print(f"Unpacking {', '.join(DEBIAN_PACKAGES)} of {suite} for arm64", flush=True)
        _unpack_root(environment, suite)
        _record_content(environment.root, root_content)
    wheels = " ".join([environment.python_name(), *required_packages()])
    if _content(environment.venv) != wheels:
        print(f"Installing {len(required_packages())} packages for arm64", flush=True)
        _install_wheels(environment)
        _record_content(environment.venv, wheels)


def _content(folder: Path) -> str | None:
    record = folder / ".content"
    return record.read_text() if record.exists() else None


def _record_content(folder: Path, content: str) -> None:
    (folder / ".content").write_text(content)


def _unpack_root(environment: Environment, suite: str) -> None:
    """
    Unpack Debian packages and what they depend on, without running their scripts.

    mmdebstrap chooses the mirror, as for any other root. It writes a tar, which any user can
    unpack: its own folders may belong to other users. The modes that need no programs of the root
    differ for root, to whom `chrootless` is forbidden.
    """
    shutil.rmtree(environment.root, ignore_errors=True)
    environment.root.mkdir(parents=True)
    tar = environment.folder / "root.tar"
    mode = "root" if os.geteuid() == 0 else "chrootless"
    command = ["mmdebstrap", "--quiet", f"--mode={mode}", "--arch=arm64", "--variant=extract"]
    command += ["--format=tar", f"--include={','.join(DEBIAN_PACKAGES)}", suite, str(tar)]
    subprocess.run(command, check=True)
    unpack = ["tar", "xf", str(tar), "-C", str(environment.root)]
    subprocess.run([*unpack, "--exclude=./dev", "--no-same-owner"], check=True)
    tar.unlink()


def required_packages() -> list[str]:
    """Return what kafkascan, its build and its tests need, from `pyproject.toml`."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = configuration["project"]["optional-dependencies"]
    names = [*configuration["build-system"]["requires"], *configuration["project"]["dependencies"]]
    names += [name for extra in (*EXTRAS, "test") for name in extras[extra]]
    return sorted({one for one in names if "==" not in one and not one.startswith("kafkascan[")})


def _install_wheels(environment: Environment) -> None:
    """Unpack wheels with the pip of this process, which is not emulated."""
    shutil.rmtree(environment.venv, ignore_errors=True)
    name = environment.python_name()
    site = environment.venv / "lib" / name / "site-packages"
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    command += ["--no-compile", "--cache-dir", str(environment.folder / "pip")]
    command += ["--target", str(site), "--only-binary=:all:", "--implementation", "cp"]
    command += ["--python-version", name.removeprefix("python")]
    command += [f"--platform=manylinux_2_{version}_aarch64" for version in GLIBC_VERSIONS]
    # pip compares with the packages of this process, which are others.
    subprocess.run([*command, *required_packages()], check=True, stderr=subprocess.DEVNULL)
    interpreter = environment.root / "usr" / "bin" / name
    (environment.venv / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\n")
    environment.python.parent.mkdir()
    environment.python.write_text(
        f'#!/bin/sh\nexec {QEMU} -L "{environment.root}" -0 "$0" "{interpreter}" "$@"\n'
    )
    environment.python.chmod(0o755)


def compile_package(environment: Environment) -> None:
    """Compile the modules: setup.py runs under emulation, the compiler does not."""
    headers = environment.root / "usr" / "include"
    flags = {"CC": COMPILER, "LDSHARED": f"{COMPILER} -shared", "CFLAGS": f"-idirafter {headers}"}
    command = [str(environment.python), "setup.py", "-q", "build"]
    command += ["--build-base", str(environment.folder / "base"), "--build-lib"]
    subprocess.run([*command, str(environment.run)], cwd=ROOT, env=os.environ | flags, check=True)
    _write_metadata(environment)
    shutil.rmtree(environment.run / "tests", ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "target", "node_modules")
    shutil.copytree(ROOT / "tests", environment.run / "tests", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", environment.run)


def _write_metadata(environment: Environment) -> None:
    """Write what `importlib.metadata` finds in the folder, such as the version."""
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(environment.run)]
    without = os.environ | {"KAFKASCAN_NO_EXTENSIONS": "1"}
    subprocess.run(command, cwd=ROOT, env=without, check=True)


def run_tests(environment: Environment, tests: list[str], jobs: int) -> int:
    """Run pytest under emulation; return its exit code."""
    command = [str(environment.python), "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    if jobs > 1:
        command += ["-n", str(jobs)]
    result = subprocess.run([*command, *tests], cwd=environment.run, check=False)
    return result.returncode
