"""Programs of message schemas as a C header, and messages of golden files for each of them."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np

import kafkascan as ks
from kafkascan.format.schemas.message_decoder import Schema, read_message_frame
from kafkascan.format.schemas.message_encoder import encode
from kafkascan.format.schemas.metadata_messages import METADATA_RECORDS
from kafkascan.internal_topics.message_program import compile_message
from tests.support.message_schemas import SCHEMAS
from tests.support.paths import GOLDEN
from tests.support.random_messages import random_message

# One byte of an input says which program decodes it.
_MOST = 256


def _programs() -> list[tuple[Schema, int]]:
    found = [(one, version) for one in SCHEMAS.values() for version in range(one.newest + 1)]
    assert len(found) <= _MOST
    return found


def write_header(path: Path) -> None:
    """Write the programs of all versions of all messages."""
    lines = [
        "typedef struct fuzz_program { const ks_instruction *code; int64_t size; int32_t columns;"
        " const int32_t *widths; int is_flexible; } fuzz_program;"
    ]
    entries = []
    for number, (schema, version) in enumerate(_programs()):
        compiled = compile_message(schema)
        (program,) = compiled.numbers_of(np.array([version], np.int32)).tolist()
        code = compiled.instructions[compiled.first[program] : compiled.first[program + 1]]
        widths = [one.width for one in compiled.root]
        rows = ",".join("{" + ",".join(map(str, row)) + "}" for row in code.tolist())
        lines.append(f"static const ks_instruction code_{number}[] = {{{rows}}};")
        lines.append(f"static const int32_t widths_{number}[] = {{{','.join(map(str, widths))}}};")
        entries.append(
            f"{{code_{number}, {len(code)}, {len(widths)}, widths_{number},"
            f" {int(version >= schema.flexible_since)}}}"
        )
    lines.append(f"static const fuzz_program fuzz_programs[] = {{{', '.join(entries)}}};")
    lines.append(f"enum {{ FUZZ_PROGRAMS = {len(entries)} }};\n")
    path.write_text("\n".join(lines))


def message_inputs() -> set[bytes]:
    """Return inputs with random messages, and with those of brokers' metadata logs."""
    numbers = {(schema.name, version): at for at, (schema, version) in enumerate(_programs())}
    choice = random.Random(5)
    found = set()
    for (_, version), (schema, _) in zip(numbers, _programs(), strict=True):
        several = [
            encode(schema, random_message(schema, version, choice), version) for _ in range(3)
        ]
        found.add(_input(numbers[schema.name, version], several))
    for log in sorted(GOLDEN.glob("kafka-*/data/__cluster_metadata-*/*.log")):
        for record in ks.read_records(log, columns=["value"]):
            value = record.value or b""
            code, version, start = read_message_frame(value)
            name = METADATA_RECORDS[code].name
            found.add(_input(numbers[name, version], [value[start:]]))
    return found


def _input(program: int, messages: list[bytes]) -> bytes:
    parts = [struct.pack("<H", len(one)) + one for one in messages if len(one) < 1 << 16]
    return bytes([program]) + b"".join(parts)
