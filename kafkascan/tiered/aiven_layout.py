"""Segments that Aiven's plugin stored: ``.log``, ``.indexes`` and ``.rsm-manifest``.

``<topic>-<topic id>/<partition>/<20-digit base offset>-<segment id>.<suffix>``, after any prefix
(``ObjectKeyFactory``). The manifest is written last, so a log without one was not uploaded
completely, or is being deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kafkascan.format.errors import KafkaScanError
from kafkascan.io.concurrency import map_ordered
from kafkascan.io.sources import SourceLike
from kafkascan.io.stores.stored_objects import ObjectInfo
from kafkascan.tiered.chunk_reader import ChunkCipher
from kafkascan.tiered.data_keys import KeyRing
from kafkascan.tiered.segment_manifest import SegmentManifest, parse_manifest
from kafkascan.tiered.tier_errors import MissingKeyError
from kafkascan.tiered.tier_files import ChunkedFile, IndexPart, PlainFile, TierFile
from kafkascan.tiered.tier_segments import (
    TierContent,
    TierProblem,
    TierSegment,
    Upload,
    group_uploads,
)
from kafkascan.tiered.tier_store import TierStore

_ID = "[A-Za-z0-9_-]{22}"
KEY = re.compile(
    rf"(?:.*/)?(?P<topic>[^/]+)-(?P<topic_id>{_ID})/(?P<partition>[0-9]{{1,10}})/"
    rf"(?P<base>[0-9]{{20,}})-(?P<segment_id>{_ID})\.(?P<suffix>log|indexes|rsm-manifest)",
    re.DOTALL,
)
"""The key of an object; a prefix may end within a path part."""


def read_aiven(
    store: TierStore, objects: Iterable[ObjectInfo], keys: KeyRing, threads: int | None
) -> TierContent:
    """
    Return the segments of a store.

    Parameters
    ----------
    store : TierStore
    objects : iterable of ObjectInfo
        The listing.
    keys : KeyRing
        Private keys, for encrypted segments.
    threads : int, optional
        Manifests that are read at the same time.
    """
    content = TierContent()
    uploads, others = group_uploads(objects, KEY.fullmatch)
    for item in others:
        content.add_problem("UNKNOWN_OBJECT", item.key, "not the name of a segment's object")
    found = map_ordered(uploads, lambda one: [_read_upload(store, one, keys)], threads)
    for segment, problems in found:
        content.problems += problems
        if segment is not None:
            content.segments.append(segment)
    return content


def _read_upload(
    store: TierStore, upload: Upload, keys: KeyRing
) -> tuple[TierSegment | None, list[TierProblem]]:
    item = upload.objects.get("rsm-manifest")
    if item is None:
        reason = "no manifest: the upload was not completed, or the segment is being deleted"
        return None, [
            TierProblem("NOT_UPLOADED", one.key, reason) for one in sorted(upload.objects.values())
        ]
    if "log" not in upload.objects:
        reason = "the manifest is there, but not the log"
        return None, [TierProblem("MISSING_OBJECT", f"{upload.name}.log", reason)]
    try:
        manifest, cipher = _read_manifest(store, item.key, keys)
    except MissingKeyError as error:
        return None, [TierProblem("MISSING_KEY", item.key, error.reason)]
    except (KafkaScanError, OSError) as error:
        return None, [TierProblem("BAD_MANIFEST", item.key, str(error))]
    problems = [*_size_problems(upload, manifest), *_offset_problems(upload, manifest)]
    return _segment(store, upload, manifest, cipher), problems


def _read_manifest(
    store: TierStore, key: str, keys: KeyRing
) -> tuple[SegmentManifest, ChunkCipher | None]:
    path = str(store.path / key)
    manifest = parse_manifest(store.read(key), path)
    encryption = manifest.encryption
    if encryption is None:
        return manifest, None
    return manifest, ChunkCipher(keys.data_key(encryption.data_key, path), encryption.aad)


def open_chunked_log(store: TierStore, key: str, keys: KeyRing) -> SourceLike:
    """
    Return the reader of a log whose manifest says how it is stored.

    Raises
    ------
    CorruptObjectError
        If the manifest is not one.
    MissingKeyError
    OSError
    """
    manifest, cipher = _read_manifest(store, key.removesuffix("log") + "rsm-manifest", keys)
    log = PlainFile(store, ObjectInfo(key, manifest.chunks.stored_size))
    return ChunkedFile(log, manifest, cipher).source()


def _segment(
    store: TierStore, upload: Upload, manifest: SegmentManifest, cipher: ChunkCipher | None
) -> TierSegment:
    log = PlainFile(store, upload.objects["log"])
    said = manifest.segment
    return TierSegment(
        topic=upload.parts["topic"],
        topic_id=upload.parts["topic_id"],
        partition=int(upload.parts["partition"]),
        base_offset=int(upload.parts["base"]),
        segment_id=upload.parts["segment_id"],
        log=log if manifest.is_plain else ChunkedFile(log, manifest, cipher),
        side_files=_side_files(store, upload, manifest, cipher),
        stored_size=sum(one.size for one in upload.objects.values()),
        end_offset=None if said is None else said.end_offset,
        max_timestamp=None if said is None else said.max_timestamp,
        event_timestamp=None if said is None else said.event_timestamp,
        leader_epochs=() if said is None else said.leader_epochs,
        is_compressed=manifest.is_compressed,
        is_encrypted=cipher is not None,
    )


def _side_files(
    store: TierStore, upload: Upload, manifest: SegmentManifest, cipher: ChunkCipher | None
) -> dict[str, TierFile]:
    if "indexes" not in upload.objects:
        return {}
    stored = PlainFile(store, upload.objects["indexes"])
    parts = manifest.indexes.items()
    return {kind: IndexPart(stored, at, size, cipher) for kind, (at, size) in parts}


def _size_problems(upload: Upload, manifest: SegmentManifest) -> Iterator[TierProblem]:
    """Compare the sizes of the listing with those that the manifest says."""
    log, expected = upload.objects["log"], manifest.chunks.stored_size
    if log.size != expected:
        reason = f"the object has {log.size} bytes; by the manifest, {expected}"
        yield TierProblem("SIZE_MISMATCH", log.key, reason)
    indexes = upload.objects.get("indexes")
    if indexes is None:
        reason = "the manifest is there, but not the indexes"
        yield TierProblem("MISSING_OBJECT", f"{upload.name}.indexes", reason)
        return
    expected = sum(size for _, size in manifest.indexes.values())
    if indexes.size != expected:
        reason = f"the object has {indexes.size} bytes; by the manifest, {expected}"
        yield TierProblem("SIZE_MISMATCH", indexes.key, reason)


def _offset_problems(upload: Upload, manifest: SegmentManifest) -> Iterator[TierProblem]:
    """Compare the offsets in the manifest with the name of the object, and with each other."""
    base, said = int(upload.parts["base"]), manifest.segment
    if said is None:
        return
    key = upload.objects["rsm-manifest"].key
    if said.start_offset != base:
        reason = f"the manifest begins at offset {said.start_offset}; by its name, at {base}"
        yield TierProblem("MANIFEST_MISMATCH", key, reason)
    elif said.end_offset < base - 1:
        reason = f"the manifest ends at offset {said.end_offset}, and begins at {base}"
        yield TierProblem("MANIFEST_MISMATCH", key, reason)
