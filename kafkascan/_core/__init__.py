"""The compiled layer: loops over bytes. No file names, no exceptions for bad data.

Modules are compiled without bounds checks and without negative indices: ``names[-1]`` reads out of
bounds here.
"""

from importlib.util import find_spec

# Python imports the package from the current folder first: in a clone, from sources.
if find_spec("kafkascan._core.layout") is None:
    raise ImportError(
        f"kafkascan was imported from {__path__[0].removesuffix('_core')}, which is not compiled "
        "for this Python. In a clone, run `make demo` and use .venv/bin/python. To use an "
        "installed kafkascan, start Python in another folder, or with -P."
    )
