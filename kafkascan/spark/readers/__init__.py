"""Entry points of Spark: data frames, the data source, streams. Jobs import them, too."""

from __future__ import annotations

import re

PYSPARK = ((4, 0), (4, 3))
"""The oldest and the newest version of PySpark with which kafkascan was tested."""


def require_pyspark(version: str) -> None:
    """Raise `ImportError` for a version of PySpark with which kafkascan was not tested."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not PYSPARK[0] <= (int(found[1]), int(found[2])) <= PYSPARK[1]:
        oldest, newest = ("{}.{}".format(*one) for one in PYSPARK)
        raise ImportError(f"kafkascan needs PySpark {oldest} to {newest}; this is {version}")


try:
    from pyspark import __version__
except ModuleNotFoundError:  # the modules that need it say so
    pass
else:
    # Here, because every module that needs PySpark imports one of this package.
    require_pyspark(__version__)
