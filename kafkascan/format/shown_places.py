"""URLs without their secrets: users with passwords, tokens, signatures."""

from __future__ import annotations

import re

# Elsewhere, a user without a password is a container (abfs) or a login (sftp), and no secret.
_USER_IS_A_SECRET = frozenset(
    {"http", "https", "s3", "s3a", "s3n", "gs", "gcs", "az", "azure", "adl"}
)
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")
# Without what ends a sentence or a quotation, unless a password has it; a comma may be followed
# by the next URL.
_IN_TEXT = re.compile(
    r"[a-z][a-z0-9+.-]*://(?:[^\s/?#@]*@)?"
    r"(?:(?![,;][a-z][a-z0-9+.-]*://)[^\s'\"<>])*(?<![:,;.)\]])",
    re.IGNORECASE,
)


def shown_url(url: str) -> str:
    """
    Return a URL for messages: without password, query and fragment, where signatures are.

    Anything else is returned as it is.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or "/" in scheme:
        return url
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in rest and "@" not in authority and not _HOST.fullmatch(authority):
        # The port is none: it begins a password, which has one of these characters.
        authority = rest[: rest.rindex("@") + 1]
        authority += re.split("[/?#]", rest[len(authority) :], maxsplit=1)[0]
    path = re.split(
        "[?#]" if scheme.lower() in ("http", "https") else "[?]", rest[len(authority) :]
    )
    user, at, host = authority.rpartition("@")
    is_secret = ":" in user or scheme.lower() in _USER_IS_A_SECRET
    return f"{scheme}://{host if is_secret else user + at + host}{path[0]}"


def without_secrets(text: str) -> str:
    """Return a text of messages with every URL in it as `shown_url` shows it."""
    return _IN_TEXT.sub(lambda match: shown_url(match[0]), text)
