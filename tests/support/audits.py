"""Audits in brief, and the alarms that the golden data dirs give."""

from __future__ import annotations

from pathlib import Path

import kafkascan as ks


def symbols(path: Path, **options: object) -> set[str]:
    found = ks.audit(path, deep=True, **options)  # type: ignore[arg-type]
    return {one.symbol for one in found.findings}


def alarms(path: Path, **options: object) -> set[str]:
    found = ks.audit(path, deep=True, **options)  # type: ignore[arg-type]
    return {one.symbol for one in found.alarms}


TRUE_ALARMS = {
    "kafka-4.4.0": {
        ("timestamps", "FUTURE_TIMESTAMP"),
        ("timestamps", "PAST_TIMESTAMP"),
        ("transactions", "HANGING_TRANSACTION"),
    },
    "kafka-4.4.0-killed": set(),
    "kafka-4.4.0-tiered": set(),
    "kafka-4.4.0-schemas": set(),
    "kafka-4.4.0-typed": set(),
    "kafka-4.1.1": {("transactions", "HANGING_TRANSACTION")},
    "kafka-3.9.1": {("transactions", "HANGING_TRANSACTION")},
    "kafka-2.8.2": set(),
    "kafka-2.8.2-groups": {("transactions", "HANGING_TRANSACTION")},
}
"""What the scenarios did on purpose."""
