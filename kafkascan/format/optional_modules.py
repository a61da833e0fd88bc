"""Modules of other projects that extras of kafkascan install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


def require_module(name: str, *, extra: str) -> ModuleType:
    """
    Import an optional dependency.

    Parameters
    ----------
    name : str
        Of the module.
    extra : str
        The extra of kafkascan that installs it.

    Raises
    ------
    ImportError
        If it is not installed; the message names the command that installs it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise _not_installed(name, extra) from error


@contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Name the extra in the error of an import, inside the context, of what it installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "kafkascan").partition(".")[0] == "kafkascan":
            raise
        raise _not_installed(str(error.name), extra) from error


def _not_installed(name: str, extra: str) -> ImportError:
    return ImportError(
        f"this needs {name}, which is not installed: pip install 'kafkascan[{extra}]'"
    )
