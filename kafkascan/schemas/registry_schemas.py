"""The columns of tables about registries, which help texts name: they need no NumPy."""

from __future__ import annotations

from kafkascan.tables.schema import Field, Schema, Shown

SCHEMAS_TOPIC = "_schemas"
"""The default name of the topic in Confluent's registry, Karapace and Redpanda."""

REGISTRY_SCHEMA = Schema(
    "schema_versions",
    (
        Field("subject", "string", "subject, with its context if that is not the default one",
              nullable=False, shown=Shown.ALWAYS),
        Field("version", "int32", "version of the subject", nullable=False, shown=Shown.ALWAYS),
        Field("id", "int64", "id of the schema in the prefix of records; null for a schema that"
              " only has a GUID", shown=Shown.ALWAYS),
        Field("schema_type", "string", "AVRO, PROTOBUF or JSON", nullable=False),
        Field("is_deleted", "bool", "whether the version is deleted, but can still be read by its"
              " id (soft delete)", nullable=False),
        Field("compatibility", "string", "compatibility level of the subject, or else of its"
              " context, the default one of which is the registry; null if the log sets none"),
        Field("mode", "string", "mode of the subject, or else of its context; null if the log sets"
              " none", shown=Shown.WIDE),
        Field("guid", "string", "GUID of the schema: the stored one, or the MD5 of a text without"
              " references and rules", shown=Shown.WIDE),
        Field("references", "list<struct<name:string,subject:string,version:int32>>",
              "schemas that the text refers to, by the name it uses", nullable=False,
              shown=Shown.WIDE),
        Field("offset", "int64", "offset of the last record of the version", shown=Shown.WIDE),
        Field("timestamp", "time", "time of that record"),
        Field("schema", "string", "text of the schema", nullable=False, shown=Shown.WIDE),
    ),
)  # fmt: skip
"""The columns of `Registry.to_table`."""

EXPORT_SCHEMA = Schema(
    "schema_export",
    (
        Field("subject", "string", "subject of the version", nullable=False, shown=Shown.ALWAYS),
        Field("version", "int32", "version of the subject", nullable=False, shown=Shown.ALWAYS),
        Field("id", "int64", "id of the schema; null for a schema that only has a GUID"),
        Field("is_deleted", "bool", "whether the version is soft-deleted", nullable=False),
        Field("file", "string", "file of the text, in the folder", "file", nullable=False,
              shown=Shown.ALWAYS),
    ),
)  # fmt: skip
"""The columns of the result of `export_schemas`."""
