"""No output of a command, and no error of the library, contains the secrets of a URL."""

from __future__ import annotations

import os
import pickle
import re
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import kafkascan as ks
from kafkascan.format.shown_places import without_secrets
from kafkascan.io.stores.urls import ObjectUrl, as_object_url, as_path
from tests.cli.test_urls import READING, WRITING
from tests.support.command_line import DATA, run
from tests.support.range_server import RangeServer, range_server

pytest.importorskip("obstore")

SECRET = "5ecr3t"
LOG = f"transactions-0/{5:020}.log"
# What the server at HOST reads, or refuses; the last ones are wrong in some way.
URLS = (
    f"http://{SECRET}@HOST/PATH",
    f"http://:{SECRET}@HOST/PATH",
    f"HTTP://user:{SECRET}@HOST/PATH",
    f"http://user:{SECRET}@HOST/PATH?sig={SECRET}%2F&x-amz-signature={SECRET}",
    f"http://HOST/PATH?sig={SECRET}/{SECRET}==",
    f"https://user:{SECRET}/{SECRET}@HOST/PATH",
    f"http://user:{SECRET}?{SECRET}#@HOST/PATH",
    f"http://user:'{SECRET}@HOST/PATH",
    f"s3://{SECRET}@bucket/PATH",
    f"az://container/PATH?sv=2025&sig={SECRET}",
    f"memory://user:{SECRET}@x/PATH",
    f"nonsense://:{SECRET}@HOST/PATH",
)
OPTIONS = (
    "restore URL",
    "restore URL OUT",
    "remote-segments URL",
    "info URL --layout aiven",
    "audit DISK --cluster URL",
    "diff DISK URL",
    "schemas URL",
    "schemas usage DISK --registry URL",
    "schemas export URL OUT",
    "records DISK --value-as auto --registry URL",
    "sql 'SELECT * FROM batches' URL",
    "sql 'SELECT * FROM records' DISK --registry URL",
    "sql URL DISK",
    "report URL -o OUT.html",
    "report URL",
    "advise URL",
    "diff URL --save OUT.parquet",
    "metadata URL",
    "info URL --columns URL",
    "records DISK --from-time URL",
    "batches DISK --output URL",
    "info DISK --format URL",
    "dump-log --format jsonl --files URL",
    "dump-log --files DISK,URL,URL",
    "dump-log --URL",
    "URL",
    "info --URL",
    "spark URL",
    "spark verify URL --format URL",
)  # fmt: skip
LINES = [
    *OPTIONS,
    *(re.sub(r"LOGS(/[\w-]+-0)?(/[0-9]{20}\.log)?", "URL", one) for one in (*READING, *WRITING)),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RangeServer]:
    with range_server() as found:
        for path in (DATA / LOG).parent.iterdir():
            found.objects[f"/{path.parent.name}/{path.name}"] = path.read_bytes()
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores answer at once: there are none."""
    for name in ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")


def url_of(pattern: str, server: RangeServer, path: str = LOG) -> str:
    return pattern.replace("HOST", server.url.partition("://")[2]).replace("PATH", path)


def require_no_secret(pattern: str, lines: Iterable[str], url: str, folder: Path) -> None:
    for line in lines:
        words = [
            word.replace("URL", url).replace("OUT", str(folder / "out")).replace("DISK", str(DATA))
            for word in shlex.split(line)
        ]
        done = run(*words)
        assert SECRET not in done.stdout + done.stderr, line
        assert done.returncode != 70, done.stderr
        for path in folder.rglob("*"):
            assert path.is_dir() or SECRET.encode() not in path.read_bytes(), line


@pytest.mark.parametrize("pattern", URLS)
def test_places_of_some_commands(pattern: str, server: RangeServer, tmp_path: Path) -> None:
    """Each command has one of the URLs, each URL some of the commands."""
    lines = LINES[URLS.index(pattern) :: len(URLS)]
    require_no_secret(pattern, lines, url_of(pattern, server), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", URLS)
def test_places_of_commands(pattern: str, server: RangeServer, tmp_path: Path) -> None:
    require_no_secret(pattern, LINES, url_of(pattern, server), tmp_path)


def test_a_signed_url_is_read(server: RangeServer) -> None:
    url = f"{server.url}/{LOG}"
    plain = run("dump-log", "--deep-iteration", "--files", url)
    signed = run("dump-log", "--deep-iteration", "--files", f"{url}?sig={SECRET}/{SECRET}")
    assert signed == plain
    assert f"Dumping {url}\n" in plain.stdout
    for verb in ("info", "batches"):
        assert run(verb, f"{url}?sig={SECRET}").stdout == run(verb, url).stdout != ""


@pytest.mark.parametrize("pattern", URLS)
@pytest.mark.parametrize(
    "function",
    [
        ks.scan_batches, ks.verify_crcs, ks.read_records, ks.open_log_dir, ks.open_segment,
        ks.audit, ks.count_records, ks.read_transactions, ks.recover, ks.salvage, ks.read_index,
        ks.schemas.open_registry, ks.tiered.open_tiered,
    ],
)  # fmt: skip
def test_errors_of_functions(
    pattern: str, function: Callable[..., object], server: RangeServer
) -> None:
    try:
        found = function(url_of(pattern, server, "nothing-0/nothing.log"))
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        assert SECRET not in f"{text} {error!r} {vars(error)}"
    else:
        assert SECRET not in f"{found!r} {found}"


def test_a_url_as_a_value() -> None:
    url = ObjectUrl(f"http://{SECRET}@host/a/b.log?sig={SECRET}")
    path = as_path(url.url)
    for text in (f"{url}", repr(url), f"{path}", repr(path), path.name, path.suffix, path.stem):
        assert SECRET not in text
    assert os.fspath(path) == url.url
    assert as_object_url(path) == url.url
    assert pickle.loads(pickle.dumps(path)) == path


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'http://t@h/a?b': no, http://u:p@h.", "'http://h/a': no, http://h."),
        ("http://t@h/a,http://:p@h/b;s3://k@b/c", "http://h/a,http://h/b;s3://b/c"),
        ("(https://h:80/a@b?c=d) <ftp://u:p@h>", "(https://h:80/a@b) <ftp://h>"),
        ("abfss://container@account/a, sftp://user@h/x", None),
        ("http://[::1]:80/a@b, spark://host:7077, a://b", None),
        ("kafkascan: /a/b?c: position 7: no [BAD]", None),
    ],
)
def test_texts_with_urls(text: str, shown: str | None) -> None:
    assert without_secrets(text) == (text if shown is None else shown)


def test_names_do_not_control_a_terminal(tmp_path: Path) -> None:
    """Kafka's tool prints them as they are."""
    name = tmp_path / "\x1b[31mred\x1b]0;title\x07.txt"
    name.write_bytes(b"")
    for line in (["dump-log", "--files", name], ["dump-log", "--files", f"{name}.log"],
                 ["info", "--columns", name, DATA], [name], ["dump-log", f"--{name}"]):  # fmt: skip
        done = run(*line)
        assert done.stderr
        assert "\x1b" not in done.stderr
        assert "\x07" not in done.stderr
