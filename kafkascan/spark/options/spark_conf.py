"""Recommended settings of Spark."""

from __future__ import annotations

from collections.abc import Mapping

# By default, Arrow's Java library checks bounds and nulls for every value.
_ARROW_FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Spark puts these options before those of `extraJavaOptions`, which belong to the user.
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")


def recommended_conf(
    conf: Mapping[str, str] | None = None, *, unsafe: bool = True
) -> dict[str, str]:
    """
    Return settings of Spark that speed up the transfer from Python to the JVM.

    Parameters
    ----------
    conf : mapping of str, optional
        Your own settings. The result contains them; where both have a setting, yours is kept. The
        flags of `unsafe` are added to your ``defaultJavaOptions``. ``extraJavaOptions`` are never
        changed.
    unsafe : bool, default True
        Include two flags of Arrow's Java library that increase the rows per second by up to
        2 times. They apply to the whole JVM: a value of a wrong type or size becomes an unchecked
        memory access, and code that reads a value without checking for null gets garbage.

    Returns
    -------
    dict of str
        For ``SparkSession.builder.config(map=…)`` or ``--conf``. The flags must be set when the
        JVM starts.
    """
    given = dict(conf or {})
    ours = {
        # Since Spark 4.1; a task takes a third of the time. Older versions ignore it.
        "spark.python.unix.domain.socket.enabled": "true",
        # A crash in native code then prints a traceback.
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.python.worker.faulthandler.enabled": "true",
    }
    if unsafe:
        ours |= {name: f"{_ARROW_FLAGS} {given.pop(name, '')}".strip() for name in _JAVA_OPTIONS}
    return ours | given
