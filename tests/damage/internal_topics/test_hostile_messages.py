"""Hostile messages of Kafka's own topics: bounded memory and CPU time, and errors with a reason."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from tests.support.waiting import HANG_SECONDS, IS_SANITIZED

_MIB = 1 << 20
# A few hundred bytes for each byte of a message: the decoder makes Python objects.
_MEMORY = 3 << 30
_CPU_SECONDS = 120

_PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
from kafkascan.format.schemas.log_messages import METADATA_RECORDS
from kafkascan.format.schemas.log_messages import REMOTE_LOG_RECORDS
from kafkascan.format.schemas.message_decoder import SchemaError
from kafkascan.internal_topics.topic_messages import (
    COORDINATOR_RECORDS, decode_coordinator_record, decode_framed_message,
)
body = sys.stdin.buffer.read()
ok = errors = 0
def decode(decoder, *arguments):
    global ok, errors
    try:
        decoder(*arguments)
        ok += 1
    except SchemaError:
        errors += 1
for schemas in (METADATA_RECORDS, REMOTE_LOG_RECORDS):
    for code, schema in schemas.items():
        frame = bytes([1, code & 127, schema.newest])
        decode(decode_framed_message, schemas, frame + body)
for schemas in COORDINATOR_RECORDS.values():
    for code, (_, of_value) in schemas.items():
        for version in {{0, of_value.newest}}:
            key = code.to_bytes(2, "big") + b"\\0\\1a" * 9
            decode(decode_coordinator_record, schemas, key, version.to_bytes(2, "big") + body)
print(ok, errors)
"""

_HUGE_VARINT = b"\xff\xff\xff\xff\x0f"
_BODIES = {
    "counts of 2**32 - 1": _HUGE_VARINT * 1000,
    "counts of 2**31 - 1": b"\x7f\xff\xff\xff" * 1000,
    "a count of all bytes": struct.pack(">i", _MIB - 4) + bytes(_MIB),
    "nulls and empty arrays": bytes(_MIB),
    "arrays of ones": b"\1" * _MIB,
    "arrays of twos": b"\2" * _MIB,
    "many tagged fields": b"\x80\x80\x10" + b"\x09\x00" * (_MIB // 2),
    "varints without an end": b"\x80" * _MIB,
    "strings of surrogates": b"\x80\x40" + b"\xed\xa0\x80" * (_MIB // 3),
    "a tagged field of 2**31 bytes": bytes(40) + b"\1\x63" + b"\x80\x80\x80\x80\x08" + b"x" * 99,
    "every byte": bytes(range(256)) * 4096,
}


@pytest.mark.skipif(IS_SANITIZED, reason="the sanitizer reserves address space")
@pytest.mark.parametrize("name", list(_BODIES))
def test_hostile_bytes(name: str) -> None:
    program = _PROGRAM.format(memory=_MEMORY, seconds=_CPU_SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", program], input=_BODIES[name], capture_output=True,
        timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    ok, errors = map(int, done.stdout.split())
    assert ok + errors > 50
    assert errors > 0
