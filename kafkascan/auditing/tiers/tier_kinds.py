"""Kinds of findings about remote storage: severity and advice."""

from __future__ import annotations

from kafkascan.format.findings import Severity

_NOTE, _WARNING, _ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR

TIER_KINDS: dict[str, tuple[Severity, str]] = {
    "NOT_UPLOADED": (
        _NOTE,
        "A broker does not read this object. If no upload or deletion is running, one was"
        " interrupted: the object costs storage until you delete it.",
    ),
    "MISSING_OBJECT": (
        _ERROR,
        "Consumers cannot read the segment, or not by its indexes, unless a broker is deleting it."
        " Restore the object from a version or a backup of the bucket.",
    ),
    "BAD_MANIFEST": (
        _ERROR,
        "Consumers cannot read the segment, and it was not audited. Restore the manifest from a"
        " version or a backup of the bucket.",
    ),
    "MISSING_KEY": (
        _ERROR,
        "The segment was not audited. Audit again with the private key (`--private-key ID=PEM`).",
    ),
    "SIZE_MISMATCH": (
        _ERROR,
        "The object was cut or replaced: consumers fail, or read other bytes. Restore it from a"
        " version or a backup of the bucket.",
    ),
    "OTHER_COPY": (
        _NOTE,
        "An upload was repeated, or another leader uploaded the same offsets. No action needed:"
        " a broker reads one of them. `kafkascan remote-segments` tells which one it knows.",
    ),
    "UNKNOWN_OBJECT": (
        _NOTE, "No action needed: brokers do not read it. Check what stored it here."
    ),
    "MANIFEST_MISMATCH": (
        _ERROR,
        "A broker finds segments by these values: consumers get other offsets, or retention"
        " deletes at the wrong time. Check whether the objects belong together.",
    ),
    "TIER_GAP": (
        _ERROR,
        "Consumers that come to these offsets fail with OFFSET_OUT_OF_RANGE. Look for the segments"
        " in local logs, and in versions or backups of the bucket.",
    ),
    "CATALOGUE_MISMATCH": (
        _ERROR,
        "Brokers read the object by the values of the cluster: consumers fail, or get other"
        " records. Restore the object from a version or a backup of the bucket.",
    ),
    "ORPHANED_SEGMENT": (
        _WARNING,
        "No broker reads or deletes these objects: they cost storage. Look again, if the cluster"
        " runs; then delete them.",
    ),
    "LEFTOVER_SEGMENT": (
        _WARNING, "The cluster has deleted the segment, and its objects cost storage. Delete them."
    ),
    "UNFINISHED_TRANSFER": (
        _NOTE,
        "No action needed if a broker uploads or deletes it now. Otherwise a broker has failed to,"
        " and tries again: see its log.",
    ),
    "DELETED_TOPIC": (
        _WARNING, "No broker reads these objects, and they cost storage. Delete them."
    ),
    "RETENTION_EXCEEDED": (
        _WARNING,
        "Brokers have not deleted the segments: see the log of the partition's leader for errors of"
        " its remote log manager. Until then they cost storage, and consumers read them.",
    ),
    "UNREFERENCED_SEGMENT": (
        _NOTE,
        "Another leader has replaced these offsets, and consumers do not read them. No action"
        " needed: a broker deletes the segment when its epochs are older than the log.",
    ),
}  # fmt: skip
"""By symbol; `FINDING_KINDS` contains them."""
