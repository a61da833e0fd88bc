"""Audit of log directories for damage, inconsistencies and risks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkascan.format.lazy_names import attach

if TYPE_CHECKING:
    from kafkascan.auditing.batch_checks import (
        check_batches as check_batches,
    )
    from kafkascan.auditing.finding_kinds import (
        Audit as Audit,
        LogFinding as LogFinding,
    )
    from kafkascan.auditing.placement_checks import (
        find_duplicate_logs as find_duplicate_logs,
    )
    from kafkascan.auditing.runner import (
        audit as audit,
    )
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        names={
            "batch_checks": ["check_batches"],
            "finding_kinds": ["Audit", "LogFinding"],
            "placement_checks": ["find_duplicate_logs"],
            "runner": ["audit"],
        },
    )
