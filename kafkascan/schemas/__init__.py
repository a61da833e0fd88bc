"""Schema registries: their content out of ``_schemas``, and the schemas of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.schemas.framing import (
        FramedRecords as FramedRecords,
        FrameReader as FrameReader,
        Framing as Framing,
        MessagePath as MessagePath,
        Part as Part,
    )
    from kafkascan.schemas.places import (
        RegistryError as RegistryError,
        open_registry as open_registry,
    )
    from kafkascan.schemas.plain_json import (
        JsonValues as JsonValues,
        PlainJsonDecoder as PlainJsonDecoder,
        json_values as json_values,
    )
    from kafkascan.schemas.registry import (
        RegisteredSchema as RegisteredSchema,
        Registry as Registry,
        SchemaError as SchemaError,
        SchemaReference as SchemaReference,
        SubjectVersion as SubjectVersion,
    )
    from kafkascan.schemas.schema_export import (
        export_schemas as export_schemas,
        import_requests as import_requests,
    )
    from kafkascan.schemas.values import ReaderSchema as ReaderSchema, ValueDecoder as ValueDecoder
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "framing": ["FramedRecords", "FrameReader", "Framing", "MessagePath", "Part"],
            "places": ["RegistryError", "open_registry"],
            "plain_json": ["JsonValues", "PlainJsonDecoder", "json_values"],
            "registry": [
                "RegisteredSchema",
                "Registry",
                "SchemaError",
                "SchemaReference",
                "SubjectVersion",
            ],
            "schema_export": ["export_schemas", "import_requests"],
            "values": ["ReaderSchema", "ValueDecoder"],
        },
    )
