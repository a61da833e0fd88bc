"""Records: decompress and decode the records of batches into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.records.control import (
        ControlRecord as ControlRecord,
        ControlRecordType as ControlRecordType,
        decode_control_record as decode_control_record,
        read_control_records as read_control_records,
    )
    from kafkascan.records.read_options import (
        Control as Control,
        OnCorruptLog as OnCorruptLog,
        OnDamage as OnDamage,
    )
    from kafkascan.records.record_table import (
        RECORD_COLUMN_NAMES as RECORD_COLUMN_NAMES,
        Record as Record,
        RecordTable as RecordTable,
    )
    from kafkascan.records.typed_items import (
        ColumnDecoder as ColumnDecoder,
        ColumnDecoders as ColumnDecoders,
        ItemPlace as ItemPlace,
        TypedItems as TypedItems,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "read_options": ["Control", "OnCorruptLog", "OnDamage"],
            "control": [
                "ControlRecord",
                "ControlRecordType",
                "decode_control_record",
                "read_control_records",
            ],
            "record_table": ["RECORD_COLUMN_NAMES", "Record", "RecordTable"],
            "typed_items": ["ColumnDecoder", "ColumnDecoders", "ItemPlace", "TypedItems"],
        },
    )
