"""The outcomes that the oracle names: right ones, and exceptions that no reader could decide."""

from __future__ import annotations

RIGHT = {
    "batches kept as they were": "Intact batches of the log.",
    "intact but doubtful": "Intact batches of the log that are kept, but marked.",
    "repair: right, certain": "The field has its original value.",
    "repair: right, uncertain": "The field has its original value, and is marked as a guess.",
    "repair: foreign batch whose checksum proves the field": (
        "The length or magic byte of a batch of another log. Only one value matches its checksum."
    ),
    "prefix contradicted by more batches after it": (
        "An intact batch was moved forward, so it is in Kafka's valid prefix and contradicts more"
        " batches after it. Offset order permits only one of the two sets; the larger one is kept,"
        " and marked if it is not clearly larger."
    ),
    "salvaged as files": "The file that `salvage` wrote has the batches that it reported.",
}
"""Outcomes that are right, and why."""

EXCEPTIONS = {
    # ---- undisturbed batches that are not kept ----
    "outweighed by batches, which are doubtful": (
        "At least as many valid batches with other content contradict them: of another log, of an"
        " older generation, re-signed, or with a wrong offset or epoch. Both sets have valid"
        " checksums and ascending offsets; nothing says which one is the log. The kept set is"
        " marked."
    ),
    "outweighed by batches that contradict copies, which are doubtful": (
        "As above, where the intact batches have copies: of two selections with the same number of"
        " batches, one has more copies, and the other a batch that is not of the log."
    ),
    "contradict the prefix, which are doubtful": (
        "Batches of the prefix that Kafka's recovery keeps contradict them. The prefix stays: what"
        " a broker keeps must not be lost. Its contradicted batches are marked."
    ),
    "contradict the first chain, which are doubtful": (
        "As above, with framed damaged batches in the prefix: the chain from the start of the file"
        " has no byte whose extent is unknown, as against what follows it. It is marked."
    ),
    "within the length of a damaged batch": (
        "A valid batch follows where a damaged header says that its batch ends, so the length is"
        " right, and what is within looks like the content of its records, as in a topic that has"
        " copies of logs in its values. All of these bytes are in a reported gap or loss, or in a"
        " row of a resync scan whose checksum is wrong."
    ),
    "begins in the last bytes of another valid batch": (
        "Of two valid batches that overlap, at most one was written there. The search never looks"
        " within a valid batch, as values may contain batches, so it finds the first one; if that"
        " is misplaced, its bytes are a reported gap or loss, with what follows them."
    ),
    "one batch of the prefix against one after it": (
        "Two valid batches contradict each other, and one of them has a wrong offset. The kept one"
        " is marked."
    ),
    # ---- kept batches that the log did not have ----
    "stranger: doubtful": "Marked as doubtful.",
    "stranger: uncertain repair": "Marked as an uncertain repair.",
    "stranger: re-signed": (
        "The checksum was computed after the change, so the bytes are those of a batch that was"
        " written like this. If an intact copy contradicts it, it is marked."
    ),
    "stranger: base offset that fits": (
        "No checksum covers the base offset, and the wrong one is above the batch before and below"
        " the one after, as after compaction. It is marked where it causes the only gap of a dense"
        " end; elsewhere the bytes equal those of a healthy log."
    ),
    "stranger: leader epoch that fits": (
        "No checksum covers the leader epoch, and the wrong one is not below the epoch before nor"
        " above the one after: the bytes equal those of a healthy log. If a neighbour or a copy"
        " contradicts it, it is marked."
    ),
    "stranger: older batch that fits": (
        "A batch that this log had before a compaction, in a tail. Its producer's sequences"
        " continue those before the damage, as they do if it is the log that continues."
    ),
    "stranger: foreign batch that follows without damaged bytes": (
        "It begins where a kept batch ends, and its offset is higher: the bytes equal those of a"
        " healthy log, and Kafka reads them as one."
    ),
    "stranger: foreign batch where a damaged one claims to end": (
        "By chance it begins at the byte where the header of a damaged batch says that it ends,"
        " and its offset is higher. The true next batch would look the same."
    ),
    # ---- repairs of intact or of foreign batches ----
    "repair: wrong, uncertain": "Marked as uncertain; more than one value is possible.",
    "repair: moved batch whose place has a re-signed one, uncertain": (
        "The batch fills exactly the offsets between its new neighbours, one flipped bit explains"
        " its offset, and a batch with a valid checksum has its true place. It is marked."
    ),
    "repair: moved batch whose offset a damaged one has, uncertain": (
        "As above, where the offset of the other batch was changed to that of the moved one: one"
        " flipped bit in either of them explains what is there. It is marked."
    ),
    "repair: batch that the end of the log has lost, uncertain": (
        "The batch was moved from the end of the log, which is lost. It fills exactly the offsets"
        " between its new neighbours, one flipped bit explains its offset, and its epoch fits. It"
        " is marked."
    ),
}
"""Cases that no reader could decide, and why."""


def require_named(verdict: str) -> None:
    """Check that a verdict, after the name of the verb, is a violation or has a name here."""
    name = verdict.removeprefix("resync, ").removeprefix("salvage, ")
    if "VIOLATION" not in name and name not in RIGHT and name not in EXCEPTIONS:
        raise AssertionError(f"an outcome without a name: {name!r}")
