"""What is said where an extra of kafkascan is not installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import pytest

import kafkascan as ks


def _scan_records() -> object:
    return importlib.import_module("kafkascan.polars").scan_records


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("obstore", "store", lambda: ks.scan_batches("s3://bucket/0.log")),
        ("obstore", "store", lambda: ks.open_log_dir("s3://bucket/data")),
        ("fsspec", "store", lambda: ks.scan_batches("memory://0.log")),
        ("fsspec", "store", lambda: ks.open_log_dir("memory://data")),
        ("polars", "polars", _scan_records),
        ("polars", "polars", lambda: ks.polars.scan_records("x")),
        ("pyarrow", "arrow", lambda: ks.scan_batches(b"").to_arrow()),
        ("pandas", "pandas", lambda: ks.scan_batches(b"").to_pandas()),
    ],
)
def test_the_extra_is_named(
    module: str, extra: str, use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("kafkascan.polars")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(ks, "polars", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError) as caught:
        use()
    assert f"needs {module}, which is not installed" in str(caught.value)
    assert str(caught.value).endswith(f"pip install 'kafkascan[{extra}]'")
