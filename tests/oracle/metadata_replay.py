"""Kafka's own image of the metadata, as the tables of ours."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from kafkascan.format.schemas.log_messages import METADATA_RECORDS
from kafkascan.internal_topics.metadata.metadata_image import MetadataImage
from kafkascan.internal_topics.metadata.metadata_tables import build_tables
from kafkascan.internal_topics.topic_messages import decode_framed_message
from tests.oracle.build import ClassPaths
from tests.oracle.jvm import java_command


def images_of_kafka(class_paths: ClassPaths, parts: Sequence[Sequence[bytes]]) -> list[Any]:
    """Return the tables of Kafka's image after each part of a log."""
    lines = []
    for part in parts:
        lines += [*(value.hex() for value in part), "?"]
    printed = subprocess.run(
        java_command(class_paths.broker, "kafkascan.oracle.MetadataReplay"),
        input="\n".join(lines), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    snapshots = printed.split("\n\n")[:-1]
    return [_tables_of(map(bytes.fromhex, one.split("\n"))) for one in snapshots]


def _tables_of(values: Iterator[bytes]) -> Any:
    image = MetadataImage()
    for value in values:
        message = decode_framed_message(METADATA_RECORDS, value)
        image.apply(message.schema.name, message.fields)
    return comparable_tables(image)


def comparable_tables(image: MetadataImage) -> Any:
    """Return all tables of an image, and the next producer id."""
    tables = build_tables(image, secrets=True)
    return {name: table.rows() for name, table in tables.items()} | {
        "next_producer_id": image.next_producer_id
    }
