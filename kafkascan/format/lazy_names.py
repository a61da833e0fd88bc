"""Lazy public names of packages (PEP 562), safe where a process forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import lazy_loader

from kafkascan.format.optional_modules import requires_extra

# The child of a fork keeps the import locks of threads that it does not have, and would wait
# for them forever. So no fork happens while a thread imports one of our names.
_IMPORTING = threading.RLock()
os.register_at_fork(
    before=_IMPORTING.acquire,
    after_in_parent=_IMPORTING.release,
    after_in_child=_IMPORTING.release,
)


def attach(
    package: str,
    names: Mapping[str, Sequence[str]],
    packages: Sequence[str] = (),
    *,
    extra: str | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """
    Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    A module is imported when one of its names is used for the first time.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    names : mapping of str to sequence of str
        Public names by the module, relative to the package, that defines them.
    packages : sequence of str
        Sub-packages that are attributes, too; ``__all__`` leaves them out.
    extra : str, optional
        The extra of kafkascan without which the modules cannot be imported.
    """
    import_name, list_names, public = lazy_loader.attach(package, packages, dict(names))

    def get_attribute(name: str) -> Any:
        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _IMPORTING, requires_extra(extra) if extra else nullcontext():
            return import_name(name)

    return get_attribute, list_names, [name for name in public if name not in packages]
