"""The keys of encrypted segments.

A segment has an AES key of its own. Its manifest contains it, encrypted with the public key of a
pair: RSA with OAEP, hash and mask generation by SHA3-512 (``RsaEncryptionProvider`` of Aiven's
plugin).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kafkascan.tiered.tier_errors import CorruptObjectError, MissingKeyError

if TYPE_CHECKING:
    from Crypto.PublicKey.RSA import RsaKey

_KEY_SIZE = 32

KeyPairs: TypeAlias = Mapping[str, str | os.PathLike[str]]
"""For each id of a key pair, the file with its private key: PEM, PKCS#8."""


@dataclass(frozen=True)
class KeyRing:
    """
    Private keys by the ids of their pairs.

    Parameters
    ----------
    files : mapping of str to path
        The PEM file of each private key; it is read when a segment needs it.
    """

    files: KeyPairs = field(default_factory=dict, repr=False)

    def data_key(self, text: str, path: str) -> bytes:
        """
        Decrypt the key of a segment.

        Parameters
        ----------
        text : str
            ``dataKey`` of the manifest.
        path : str
            The manifest.

        Returns
        -------
        bytes
            32 of them.

        Raises
        ------
        MissingKeyError
            If the private key is not in the ring, or is not the right one.
        CorruptObjectError
            If the text is not an encrypted key.
        OSError
            If the key file cannot be read.
        """
        key_id, colon, encoded = text.partition(":")
        if not colon or ":" in encoded or not key_id.strip():
            raise CorruptObjectError(path, 0, "dataKey is not an id and a key with a colon between")
        if key_id not in self.files:
            known = ", ".join(sorted(self.files)) or "none"
            reason = f"the segment is encrypted with key pair {key_id!r}; given keys: {known}"
            raise MissingKeyError(path, key_id, reason)
        try:
            wrapped = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise CorruptObjectError(path, 0, f"dataKey is not base64: {error}") from None
        return _unwrap(wrapped, Path(self.files[key_id]), path, key_id)


def _unwrap(wrapped: bytes, file: Path, path: str, key_id: str) -> bytes:
    # `cryptography` does not support SHA3-512 for OAEP.
    from Crypto.Cipher import PKCS1_OAEP
    from Crypto.Hash import SHA3_512

    try:
        private = _private_key(file.read_bytes())
    except (ValueError, IndexError, TypeError) as error:
        reason = f"{file}, the private key of {key_id!r}, cannot be read: {error}"
        raise MissingKeyError(path, key_id, reason) from None
    try:
        key: bytes = PKCS1_OAEP.new(private, hashAlgo=SHA3_512).decrypt(wrapped)
    except (ValueError, TypeError):
        reason = f"{file} does not decrypt the data key: another private key, or a damaged manifest"
        raise MissingKeyError(path, key_id, reason) from None
    if len(key) != _KEY_SIZE:
        raise CorruptObjectError(path, 0, f"the data key has {len(key)} bytes, not {_KEY_SIZE}")
    return key


# Each segment has a data key; checking the private key takes ten times as long as decrypting one.
@lru_cache(maxsize=4)
def _private_key(pem: bytes) -> RsaKey:
    from Crypto.PublicKey import RSA

    return RSA.import_key(pem)
