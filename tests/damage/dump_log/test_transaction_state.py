"""Dumps of transactions: states and versions that Kafka does not know."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from kafkascan.dump_log.dump_files import dump_files
from kafkascan.dump_log.dump_options import DumpOptions
from kafkascan.format.errors import CorruptIndexError
from tests.support.dump_decoders import options_for
from tests.support.internal_topics import TopicLog, transaction

_PARTITION = "__transaction_state-0"
# After the version, producer id and epoch, and the timeout.
_STATUS_AT = 2 + 8 + 2 + 4
_GOLDEN = Path(__file__).parents[2] / "golden" / "kafka-4.4.0" / "data" / "transactions-0"


@pytest.mark.parametrize(
    ("code", "printed"), [(0, "Empty"), (1, "Ongoing"), (6, "Dead"), (8, "8"), (255, "-1")]
)
def test_a_state_is_its_name_or_the_text_of_its_number(
    tmp_path: Path, code: int, printed: str
) -> None:
    key, value = transaction("t", 1, "Empty")
    assert value is not None
    changed = value[:_STATUS_AT] + bytes([code]) + value[_STATUS_AT + 1 :]
    folder = TopicLog(tmp_path / _PARTITION).add((key, changed)).write()
    out = io.BytesIO()
    dump_files([str(folder / f"{0:020}.log")], options_for(_PARTITION), out.write, str)
    _, payload = out.getvalue().decode().rstrip().split(" payload: ")
    assert json.loads(payload)["data"]["transactionStatus"] == printed


def test_a_version_of_a_transaction_index_is_known_as_an_int16(tmp_path: Path) -> None:
    """Up to Kafka 4.3, the tool read its first byte."""
    index = next(one for one in sorted(_GOLDEN.glob("*.txnindex")) if one.stat().st_size)
    for version in (b"\x00\x01", b"\x01\x00", b"\xff\xff"):
        copy = tmp_path / index.name
        copy.write_bytes(version + index.read_bytes()[2:])
        with pytest.raises(CorruptIndexError, match=r"version -?[0-9]+ is not known"):
            dump_files([str(copy)], DumpOptions(), lambda data: None, str)
