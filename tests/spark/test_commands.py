"""``kafkascan spark …``: output and exit codes."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkascan.cli.verbs import spark_commands
from kafkascan.cli.verbs.spark_commands import spark as group
from kafkascan.spark import recommended_conf
from kafkascan.spark.options.manifests import MANIFESTS
from kafkascan.tables.schema import Shown
from tests.spark.logs import DATA, damaged_log, segment_path
from tests.spark.shared_session import Builder, Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_local_master(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job runs in the shared JVM; the settings for a new one are recorded."""
    from pyspark.sql import SparkSession

    path = segment_path(tmp_path, "bad")
    path.write_bytes(damaged_log().flip(5, 70).log)
    session = Session(spark)
    builder = Builder(session)
    monkeypatch.setattr(SparkSession, "builder", builder)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    options = ["--master", "local[1]", "--format", "jsonl", "--conf", "spark.ui.enabled=false"]
    result = CliRunner().invoke(group, ["verify", str(tmp_path), str(DATA / "headers-0"), *options])
    assert result.exit_code == 1, (result.output, result.exception)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["topic"], row["bad_checksums"]) for row in found] == [("bad", 1), ("headers", 0)]
    assert f"{path}: position 595" in result.stderr
    assert session.is_stopped
    expected = recommended_conf() | {"spark.master": "local[1]", "spark.ui.enabled": "false"}
    assert builder.conf.items() >= expected.items()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify"], "Missing argument"),
        (["verify", "x", "--conf", "spark.ui"], "is not NAME=VALUE"),
        (["export", "x"], "Missing option '--output'"),
        (["verfy", "x"], "No such command"),
        (["verify", "x", "--columns", "path,bad_checksum"], "did you mean 'bad_checksums'"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_every_job_has_a_command() -> None:
    from kafkascan.spark import jobs

    names = {name.replace("-", "_") for name in group.commands}
    assert names == {"verify", "catalog", "export", "rebuild_indexes", "table"}
    functions = {spark_commands._FUNCTIONS.get(name, name) for name in names}
    assert all(callable(getattr(jobs, name)) for name in functions)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["verify", "x", "--option", "topcs=a"], "did you mean 'topics'"),
        (["verify", "x", "--option", "maxPartitionBytes=0"], "expected a size of at least 1 byte"),
        (["verify", "x", "--option", "view=records"], "does not take the option 'view'"),
        (["export", "x", "--output", "y", "--compression", "nope"], "expected one of zstd, snappy"),
    ],
)
def test_wrong_options_are_found_before_spark_starts(arguments: list[str], said: str) -> None:
    pytest.importorskip("pyspark")
    result = CliRunner().invoke(group, [*arguments, "--master", "spark://127.0.0.1:1"])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            ["--master", "spark://127.0.0.1:1"],
            "no Spark answers at spark://127.0.0.1:1: Connection",
        ),
        (["--master", "spark://127.0.0.1:1,127.0.0.1:2"], "no Spark answers at spark://127.0.0.1"),
        (["--master", "spark://host:x"], "it names no host and port"),
        (["--conf", "spark.master=spark://127.0.0.1:1"], "Connection refused"),
        (["--remote", "sc://127.0.0.1:1/;user_id=x"], "no Spark answers at sc://127.0.0.1:1"),
        (["--remote", "sc://127.0.0.1:70000"], "no Spark answers"),
    ],
)
def test_an_unreachable_master(
    where: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(group, ["verify", str(DATA), *where])
    assert result.exit_code == 3, (result.output, result.exception)
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_spark_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark_sql = pytest.importorskip("pyspark.sql")

    class Failing(Builder):
        def getOrCreate(self) -> Any:  # noqa: N802 - Spark's name
            raise RuntimeError("no such master\n\tat SparkContext.java")

    monkeypatch.setattr(pyspark_sql.SparkSession, "builder", Failing(None))
    result = CliRunner().invoke(group, ["verify", str(DATA), "--master", "nonsense"])
    assert result.exit_code == 3
    expected = "kafkascan: Spark did not start at nonsense: no such master\n"
    assert result.stderr == expected


def test_an_error_in_a_task_is_shown_by_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark puts the traceback of the task around it."""
    pytest.importorskip("pyspark")
    from kafkascan.spark import jobs

    text = (
        "Job aborted due to stage failure: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n'
        "kafkascan.format.errors.TruncatedLogError: /data/a-0/0.log: it shrank\n"
        "\tat org.apache.spark.api.python\n"
    )

    def verify(*arguments: Any, **options: Any) -> None:
        raise OSError(text)

    monkeypatch.setattr(spark_commands, "_session", lambda *_: nullcontext())
    monkeypatch.setattr(jobs, "verify", verify)
    result = CliRunner().invoke(group, ["verify", str(DATA)])
    assert result.exit_code == 3
    expected = "kafkascan: kafkascan.format.errors.TruncatedLogError: /data/a-0/0.log: it shrank\n"
    assert result.stderr == expected


def test_an_exception_of_java_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from kafkascan.spark import jobs

    class JavaError(Exception):
        java_exception = SimpleNamespace(getMessage=lambda: "no plugin of the catalog 'lake'\nat x")

    def verify(*arguments: Any, **options: Any) -> None:
        raise JavaError

    monkeypatch.setattr(spark_commands, "_session", lambda *_: nullcontext())
    monkeypatch.setattr(jobs, "verify", verify)
    result = CliRunner().invoke(group, ["verify", str(DATA)])
    assert result.exit_code == 3
    assert result.stderr == "kafkascan: no plugin of the catalog 'lake'\n"


def test_without_pyspark_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    result = CliRunner().invoke(group, ["verify", str(DATA)])
    assert result.exit_code == 2
    assert "Error: this needs pyspark: pip install 'kafkascan[spark]' (" in result.stderr


def test_settings_of_the_user_are_kept(spark: SparkSession) -> None:
    """The JVM of the tests has options of its own besides the recommended ones."""
    properties = spark.sparkContext._jvm.System
    assert properties.getProperty("kafkascan.user") == "kept"
    assert properties.getProperty("arrow.enable_unsafe_memory_access") == "true"
    assert properties.getProperty("arrow.enable_null_check_for_get") == "false"


def test_recommended_settings() -> None:
    assert not [name for name in recommended_conf() if "extraJavaOptions" in name]
    name = "spark.executor.defaultJavaOptions"
    given = {name: "-XX:+UseG1GC", "spark.python.unix.domain.socket.enabled": "false"}
    merged = recommended_conf(given)
    assert merged[name].endswith(" -XX:+UseG1GC")
    assert recommended_conf()[name] in merged[name]
    assert merged["spark.python.unix.domain.socket.enabled"] == "false"
    assert recommended_conf(given, unsafe=False).items() >= given.items()
    assert given[name] == "-XX:+UseG1GC", "the caller's settings are not changed"


# Tables need the jars of their formats: tests/oracle/test_lake_tables.py.
@pytest.mark.parametrize("job", [job for job in MANIFESTS if job != "table"])
def test_columns_of_manifests(job: str, spark: SparkSession, tmp_path: Path) -> None:
    from kafkascan.spark import jobs

    target = {
        "catalog": {"output": str(tmp_path / "out")},
        "export": {"output": str(tmp_path / "out")},
        "rebuild_indexes": {"target": str(tmp_path / "out"), "force": True},
    }.get(job, {})
    report = getattr(jobs, job)(spark, str(DATA / "transactions-0"), **target)
    assert tuple(report.manifest.column_names) == MANIFESTS[job].names
    assert len(report.manifest) > 0


def test_chosen_columns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "builder", Builder(Session(spark)))
    arguments = ["verify", str(DATA / "transactions-0"), "--master", "local[1]"]
    chosen = CliRunner().invoke(
        group, [*arguments, "--columns", "bad_checksums,topic", "--format", "csv"]
    )
    assert chosen.stdout == "bad_checksums,topic\n" + 2 * "0,transactions\n"
    narrow = CliRunner().invoke(group, arguments)
    shown = narrow.stdout.split("\n", 1)[0].split()
    ranks = {one.shown for one in MANIFESTS["verify"] if one.name in shown}
    assert Shown.ALWAYS in ranks <= {Shown.ALWAYS, Shown.USUALLY}
    wide = CliRunner().invoke(group, [*arguments, "--wide"])
    assert wide.exit_code == 0, (wide.output, wide.exception)
    assert tuple(wide.stdout.split("\n", 1)[0].split()) == MANIFESTS["verify"].names
