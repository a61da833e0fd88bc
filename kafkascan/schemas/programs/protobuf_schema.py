"""Protobuf schemas: descriptors of the messages of a .proto text and of what it imports."""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from kafkascan.format.errors import ValueSchemaError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_MAX_TEXT, _MAX_FILES, _MAX_OUTPUT = 1 << 20, 1 << 10, 1 << 24
_SECONDS, _MAX_REASON = 30, 1000
# The count of more indexes can be the first byte of a message.
_MOST_INDEXES = 3
_MAIN = "kafkascan-value.proto"  # as long as no import has this name
_IMPORT_NAME = re.compile(r"(?!/)(?:(?!\.\.?/)[\w.+@-]+/)*(?!\.)[\w.+@ -]+")
_IMPORTS = re.compile(r'\bimport\s+(?:public\s+|weak\s+|option\s+)?["\']([^"\'\n]+)["\']')

# Apicurio's serializers write a text from a descriptor, with the entries of maps as messages, which
# protoc refuses. While it runs, they have another option instead, which nobody uses.
_MAP_ENTRY = re.compile(r"\boption\s+map_entry\s*=\s*true\s*;")
_PLAIN_MESSAGE = "option no_standard_descriptor_accessor = true;"

# What protoc is run in: limits of the process, and the compiler. Its own folder of includes has
# google/protobuf/*.proto and nothing else.
_COMPILER = """
import importlib.resources, resource, sys
for limit, most in ((resource.RLIMIT_CPU, 20), (resource.RLIMIT_FSIZE, 1 << 24),
                    (resource.RLIMIT_AS, 1 << 32)):
    try:
        resource.setrlimit(limit, (most, most))
    except (ValueError, OSError):
        pass
from grpc_tools import protoc
include = importlib.resources.files("grpc_tools") / "_proto"
sys.exit(protoc.main(["protoc", *sys.argv[1:], f"-I{include}"]))
"""

# Files that Confluent's registries have without a reference; they are beside this one.
_CONFLUENT = ("confluent/meta.proto", "confluent/type/decimal.proto")


@dataclass(frozen=True)
class ProtobufSchema:
    """
    The messages of a schema's file.

    Attributes
    ----------
    messages : dict of tuple of int to google.protobuf.descriptor.Descriptor
        By path: the number of a message in its file, of one nested in it there, and so on. Prefixes
        of values have these numbers.
    """

    messages: Mapping[tuple[int, ...], Descriptor]

    def path_of(self, full_name: str) -> tuple[int, ...] | None:
        """Return the path of a message; None if the file does not have it."""
        paths = (path for path, one in self.messages.items() if one.full_name == full_name)
        return next(paths, None)

    def message_named(self, name: str) -> Descriptor | None:
        """Return the message with a name, nested or not; None if there are none or several."""
        found = [one for one in self.messages.values() if one.name == name]
        return found[0] if len(found) == 1 else None

    @property
    def has_one_message(self) -> bool:
        """Whether the file has one message, beside those that are nested in it."""
        return sum(len(path) == 1 for path in self.messages) == 1

    @property
    def is_deep(self) -> bool:
        """Whether the number of a message's indexes can be the first byte of a message, too."""
        return max(map(len, self.messages), default=0) > _MOST_INDEXES


def compile_protobuf(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """
    Return the messages of a schema.

    Parameters
    ----------
    text : str
        A .proto file, or a FileDescriptorProto in base64.
    references : mapping of str to str
        What it may import, by the names that it uses: other schemas. Files of
        ``google/protobuf`` need no reference, nor those of ``confluent`` and, if
        googleapis-common-protos is installed, of ``google/type``.

    Raises
    ------
    ValueSchemaError
        If it is invalid, imports something else, or is too large.
    ImportError
        If grpcio-tools is not installed.
    """
    texts = {**references, _MAIN: text}
    if len(texts) > _MAX_FILES or sum(map(len, texts.values())) > _MAX_TEXT:
        raise ValueSchemaError("a schema and its references have more than 1 MiB or 1024 files")
    for name in references:
        if not _IMPORT_NAME.fullmatch(name) or name == _MAIN or len(name) > 200:
            raise ValueSchemaError(f"a reference has the name {name[:200]!r}, which is no path")
    encoded = {name: _from_base64(one) for name, one in texts.items()}
    files = {name: one for name, one in encoded.items() if one is not None}
    for name, one in files.items():
        one.name = name
    sources = {name: one for name, one in texts.items() if name not in files}
    if sources:
        files = _compiled(_with_builtins(sources), files) | files
    return ProtobufSchema(dict(_messages(files)))


def _from_base64(text: str) -> FileDescriptorProto | None:
    """Return the descriptor that a text encodes; None if the text is a .proto file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        data = base64.b64decode("".join(text.split()), validate=True)
        return FileDescriptorProto.FromString(data) if data else None
    except (binascii.Error, ValueError, DecodeError):
        return None


def _with_builtins(sources: dict[str, str]) -> dict[str, str]:
    """Return the sources, and files that they import and that need no reference."""
    sources, missing = dict(sources), list(sources)
    while missing:
        for name in _IMPORTS.findall(sources[missing.pop()]):
            text = None if name in sources else _builtin(name)
            if text is not None:
                sources[name] = text
                missing.append(name)
    return sources


def _builtin(name: str) -> str | None:
    folder, _, file = name.rpartition("/")
    if folder == "google/type" and re.fullmatch(r"\w+\.proto", file):
        spec = importlib.util.find_spec("google.type")
        for place in (spec and spec.submodule_search_locations) or ():
            path = Path(place) / file
            return path.read_text("utf-8") if path.is_file() else None
    return (Path(__file__).parent / name).read_text("utf-8") if name in _CONFLUENT else None


def _compiled(
    sources: Mapping[str, str], files: Mapping[str, FileDescriptorProto]
) -> dict[str, FileDescriptorProto]:
    """Return descriptors of sources, and of what they import of google/protobuf."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if importlib.util.find_spec("grpc_tools") is None:
        raise ImportError("Protobuf needs grpcio-tools: pip install 'kafkascan[protobuf]'")
    with tempfile.TemporaryDirectory(prefix="kafkascan-") as temporary:
        folder, out, given = Path(temporary) / "in", Path(temporary) / "out", []
        for name, text in sources.items():
            path = folder / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(_MAP_ENTRY.sub(_PLAIN_MESSAGE, text), "utf-8")
            except (OSError, UnicodeEncodeError) as error:
                raise ValueSchemaError(f"{name}: {error}") from None
        if files:
            path = Path(temporary) / "given"
            path.write_bytes(FileDescriptorSet(file=files.values()).SerializeToString())
            given = [f"--descriptor_set_in={path}"]
        command = [
            sys.executable, "-I", "-c", _COMPILER, f"-I{folder}", *given, "--include_imports",
            f"--descriptor_set_out={out}", *sources,
        ]  # fmt: skip
        # What the interpreter needs to start, and nothing that changes what it loads.
        env = {name: one for name, one in os.environ.items() if name in ("LD_LIBRARY_PATH", "PATH")}
        try:
            done = subprocess.run(
                command, cwd=temporary, env=env, capture_output=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise ValueSchemaError("protoc did not end in time") from None
        if done.returncode != 0 or not out.is_file():
            raise ValueSchemaError(_reason(done.stderr))
        if out.stat().st_size > _MAX_OUTPUT:
            raise ValueSchemaError("the descriptors have more than 16 MiB")
        compiled = FileDescriptorSet.FromString(out.read_bytes()).file
    for one in compiled:
        if _MAP_ENTRY.search(sources.get(one.name, "")):
            _restore_map_entries(one)
    return {one.name: one for one in compiled}


def _restore_map_entries(file: FileDescriptorProto) -> None:
    """Mark the messages that the text of a compiled file declares as entries of maps."""
    messages = list(file.message_type)
    for one in messages:  # grows while it is walked
        messages += one.nested_type
        if one.options.no_standard_descriptor_accessor:
            one.options.ClearField("no_standard_descriptor_accessor")
            one.options.map_entry = True


def _reason(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").replace(f"{_MAIN}:", "line ").splitlines()
    errors = [line for line in lines if "warning:" not in line]
    return "; ".join(errors)[:_MAX_REASON] or "protoc failed"


def _messages(
    files: Mapping[str, FileDescriptorProto],
) -> Iterator[tuple[tuple[int, ...], Descriptor]]:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool, needed, waiting = DescriptorPool(), dict[str, "FileDescriptorProto"](), [_MAIN]
    for name in waiting:  # grows while it is walked
        if name not in needed:
            needed[name] = files.get(name) or well_known(name)
            waiting += needed[name].dependency
    try:
        imports = {name: one.dependency for name, one in needed.items()}
        for name in TopologicalSorter(imports).static_order():
            pool.AddSerializedFile(needed[name].SerializeToString())
    except CycleError as error:
        raise ValueSchemaError(f"{error.args[1][0]} imports itself") from None
    except TypeError as error:
        raise ValueSchemaError(str(error)[:_MAX_REASON]) from None
    main = pool.FindFileByName(_MAIN)
    found: list[tuple[tuple[int, ...], Descriptor]]
    found = [((at,), one) for at, one in enumerate(main.message_types_by_name.values())]
    for path, message in found:  # grows while it is walked
        if not message.GetOptions().map_entry:
            yield path, message
        found += [((*path, at), one) for at, one in enumerate(message.nested_types)]


def well_known(name: str) -> FileDescriptorProto:
    """Return a file of protobuf's own."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    known = re.fullmatch(r"google/protobuf/(\w+)\.proto", name)
    try:
        if known is None:
            raise ImportError
        module = importlib.import_module(f"google.protobuf.{known[1]}_pb2")
    except ImportError:
        raise ValueSchemaError(
            f"the schema imports {name!r}, which it has no reference to"
        ) from None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
