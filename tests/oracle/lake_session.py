"""A session of Spark with catalogs of Iceberg (Hadoop, JDBC on SQLite) and tables of Delta."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = {
    "iceberg": "jdbc_catalog.db.records",
    "iceberg-hadoop": "hadoop_catalog.db.records",
    "delta": "delta.`{folder}/delta/records`",
}
"""Names of tables, by format; a second part names the catalog."""


def lake_conf(folder: Path) -> dict[str, str]:
    """The settings of a session whose catalogs are in a folder."""
    iceberg = "org.apache.iceberg.spark"
    jdbc, hadoop = "spark.sql.catalog.jdbc_catalog", "spark.sql.catalog.hadoop_catalog"
    return {
        "spark.sql.extensions": f"{iceberg}.extensions.IcebergSparkSessionExtensions,"
        "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        jdbc: f"{iceberg}.SparkCatalog",
        f"{jdbc}.type": "jdbc",
        f"{jdbc}.uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=30000",
        f"{jdbc}.jdbc.schema-version": "V1",
        f"{jdbc}.warehouse": f"{folder}/jdbc",
        hadoop: f"{iceberg}.SparkCatalog",
        f"{hadoop}.type": "hadoop",
        f"{hadoop}.warehouse": f"{folder}/hadoop",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        # Every table has few rows.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    }


def lake_session(folder: Path, jars: list[Path], master: str = "local[1]") -> SparkSession:
    """Start a session; `folder` exists."""
    from pyspark.sql import SparkSession

    from kafkascan.spark import recommended_conf

    builder = SparkSession.builder.master(master)
    ours = lake_conf(folder) | {"spark.jars": ",".join(map(str, jars))}
    for name, value in recommended_conf(ours).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
