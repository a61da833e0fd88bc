"""The messages in control records (KIP-98, KIP-595, KIP-630, KIP-853)."""

from __future__ import annotations

from kafkascan.format.schemas.message_decoder import NO_UUID, Array, Field, Schema

_ALWAYS = 0

END_TXN_MARKER = Schema(
    "EndTxnMarker", (Field("version", "int16"), Field("coordinator_epoch", "int32"))
)

_VOTER = Schema(
    "Voter",
    (Field("voter_id", "int32"), Field("voter_directory_id", "uuid", since=1, default=NO_UUID)),
    _ALWAYS,
)
LEADER_CHANGE = Schema(
    "LeaderChangeMessage",
    (
        Field("version", "int16"),
        Field("leader_id", "int32"),
        Field("voters", Array(_VOTER)),
        Field("granting_voters", Array(_VOTER)),
    ),
    _ALWAYS,
    newest=1,
)
SNAPSHOT_HEADER = Schema(
    "SnapshotHeaderRecord",
    (Field("version", "int16"), Field("last_contained_log_timestamp", "int64")),
    _ALWAYS,
)
SNAPSHOT_FOOTER = Schema("SnapshotFooterRecord", (Field("version", "int16"),), _ALWAYS)
KRAFT_VERSION = Schema(
    "KRaftVersionRecord", (Field("version", "int16"), Field("k_raft_version", "int16")), _ALWAYS
)
_ENDPOINT = Schema(
    "Endpoint",
    (Field("name", "string"), Field("host", "string"), Field("port", "uint16")),
    _ALWAYS,
)
_VERSIONS = Schema(
    "KRaftVersionFeature",
    (Field("min_supported_version", "int16"), Field("max_supported_version", "int16")),
    _ALWAYS,
)
KRAFT_VOTERS = Schema(
    "VotersRecord",
    (
        Field("version", "int16"),
        Field(
            "voters",
            Array(
                Schema(
                    "Voter",
                    (
                        Field("voter_id", "int32"),
                        Field("voter_directory_id", "uuid"),
                        Field("endpoints", Array(_ENDPOINT)),
                        Field("k_raft_version_feature", _VERSIONS),
                    ),
                    _ALWAYS,
                )
            ),
        ),
    ),
    _ALWAYS,
)
