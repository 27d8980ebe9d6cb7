"""The secret's file: what is taken from it, what is refused, and what a change of it does."""

from __future__ import annotations

import hmac
import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from zookeeper.errors import SecretUnusable
from zookeeper.secret import FILE, LOOK_SECONDS, Secret, derived, make_secret, secret_of

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


def put(path: Path, text: str | bytes, mode: int = 0o600) -> Path:
    beside = path.with_name("beside")
    beside.write_bytes(text if isinstance(text, bytes) else text.encode())
    beside.chmod(mode)
    beside.replace(path)
    return path


def test_a_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert make_secret(tmp_path / FILE)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    (text,) = Secret(tmp_path / FILE).texts
    assert len(text) == 64
    assert not make_secret(tmp_path / FILE)
    assert Secret(tmp_path / FILE).texts == (text,)
    assert [each.name for each in tmp_path.iterdir()] == [FILE]
    with pytest.raises(SecretUnusable, match="cannot make the secret"):
        make_secret(tmp_path / "nowhere" / FILE)
    assert text not in repr(Secret(tmp_path / FILE))


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (None, 0, "No such file"),
        (ONE, 0o640, "mode 0640: others may read it"),
        (ONE, 0o604, "mode 0604"),
        (ONE, 0o666, "mode 0666"),
        ("", 0o600, "is no line"),
        ("\n\n", 0o600, "is no line"),
        ("short", 0o600, "at least 32"),
        (f"{ONE}\nshort", 0o600, "at least 32"),
        (f"{ONE}\n{TWO}\n{THREE}", 0o600, "is no line, or two"),
        (b"\xff" * 64, 0o600, "is no line"),
        ("1" * 5000, 0o600, "is no line"),
    ],
)
def test_a_file_that_is_no_secret_is_refused(tmp_path: Path, text: str | bytes | None, mode: int, said: str) -> None:
    path = tmp_path / "s"
    if text is not None:
        put(path, text, mode)
    with pytest.raises(SecretUnusable, match=said) as refused:
        Secret(path)
    assert ONE not in str(refused.value)


def test_a_folder_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(SecretUnusable):
        Secret(tmp_path)


def test_the_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    def clock() -> float:
        return now

    path = put(tmp_path / "s", f"{ONE}\n")
    secret = Secret(path, clock=clock)
    put(path, f"{ONE}\n  {TWO}  \n")
    assert secret.texts == (ONE,), "it is looked at once a second"
    now += LOOK_SECONDS
    assert secret.texts == (ONE, TWO)
    for wrong in ("", "short", f"{ONE}\n{TWO}\n{THREE}"):
        put(path, wrong)
        now += LOOK_SECONDS
        assert secret.texts == (ONE, TWO), "a slip of the pen changes nothing"
    put(path, THREE, 0o644)
    now += LOOK_SECONDS
    assert secret.texts == (ONE, TWO)
    path.unlink()
    for _ in range(3):
        now += LOOK_SECONDS
        assert secret.texts == (ONE, TWO)
    put(path, THREE)
    now += LOOK_SECONDS
    assert secret.texts == (THREE,)
    said = [record.message for record in caplog.records if "stays as it was" in record.message]
    assert len(said) == 5 - 2, "each once"
    assert not [text for text in (ONE, TWO, THREE) if text in caplog.text]


def test_keys_are_hkdf_and_differ_by_purpose() -> None:
    extracted = hmac.new(b"headrace", ONE.encode(), sha256).digest()
    assert derived(ONE, "links") == hmac.new(extracted, b"links\x01", sha256).digest()
    secret = Secret(None, (ONE, TWO))
    assert secret.keys("links") == (derived(ONE, "links"), derived(TWO, "links"))
    assert len({*secret.keys("links"), *secret.keys("zookeeper main")}) == 4


def test_a_secret_is_looked_for_in_the_data_directory(tmp_path: Path) -> None:
    assert secret_of(None, tmp_path) is None
    make_secret(tmp_path / FILE)
    other = put(tmp_path / "other", TWO)
    found = secret_of(None, tmp_path)
    assert found is not None
    assert found.path == tmp_path / FILE
    named = secret_of(other, tmp_path)
    assert named is not None
    assert named.texts == (TWO,)
    with pytest.raises(SecretUnusable):
        secret_of(tmp_path / "missing", tmp_path)
