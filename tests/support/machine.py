"""A machine with a broker, as the examples of the commands' help expect it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.paths import GOLDEN
from tests.support.tiers import put_local


def make_machine(folder: Path) -> Path:
    """Return a folder with a broker's data dir, which has the topic `orders`, and a backup."""
    data, backup = folder / "var/lib/kafka", folder / "backup"
    for golden in ("kafka-4.4.0/data", "kafka-4.4.0-tiered/data"):
        shutil.copytree(GOLDEN / golden, data, dirs_exist_ok=True)
    shutil.copytree(GOLDEN / "kafka-4.4.0-schemas/data/_schemas-0", data / "_schemas-0")
    log = GOLDEN / "kafka-4.4.0/data/transactions-0"
    shutil.rmtree(data / "transactions-0")
    shutil.copytree(log, data / "orders-0")
    shutil.copytree(data, backup / "kafka")
    put_local(folder / "mnt/tier", data / "orders-0")
    return folder
