"""Evidence from elsewhere: folders, archives and git revisions, what is picked out of them, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from calls import Said

from battery.ledger import parcel, revision
from battery.ledger.errors import InputError
from battery.ledger.store import Campaign


@pytest.fixture
def root(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published, tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def verify(
    root: Path, say: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Said]:
    """`battery verify …` in the project; every temporary folder it makes must be gone afterwards."""
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(rooms))

    def run(*words: str) -> Said:
        said = say(root, "verify", *words)
        assert not list(rooms.iterdir())
        return said

    return run


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(root), *who, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(root: Path) -> Path:
    """Two commits: in the first a digit of a page of `brisk` is another, in the second all is well."""
    git(root, "init", "-q", "-b", "main")
    page = root / "reports" / "brisk.md"
    whole = page.read_text()
    page.write_text(whole.replace("n=6", "n=9", 1))
    assert page.read_text() != whole
    (root / "notes.txt").write_text("no evidence\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    page.write_text(whole)
    git(root, "commit", "-qam", "second")
    return root


def test_names_and_folders(
    root: Path, tmp_path: Path, verify: Callable[..., Said], say: Callable[..., Said]
) -> None:
    seal = Campaign(root / "receipts" / "calm").sealed()
    assert seal
    said = verify("calm")
    assert (
        said.returncode == 0
        and f"calm: holds (seal, receipts, requests, findings, report, charts); seal {seal.seal}"
        in said.stdout
    )
    assert "brisk" not in said.stdout
    (root / "reports" / "brisk.md").write_text("nothing\n")
    assert verify().returncode == 8
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for words, code, told in (
        ([str(root), "brisk"], 8, "brisk: reports/brisk.md:1: says"),
        ([str(root), "calm"], 0, f"{root}: calm: holds"),
        ([str(root / "receipts" / "calm")], 0, f"{root}: calm: holds"),
    ):
        said = say(elsewhere, "verify", *words)
        assert said.returncode == code and told in said.stdout + said.stderr


def test_what_names_nothing(root: Path, tmp_path: Path, verify: Callable[..., Said]) -> None:
    for words, told in (
        (["clam"], "did you mean 'calm'?"),
        (["receipts"], "is no campaign (no campaign.json in it), and has no folder receipts/"),
        ([".", "clam"], "clam: no campaign in ., no folder, no archive and no git revision"),
        ([str(tmp_path / "no.zip")], "no.zip: no campaign in"),
    ):
        said = verify(*words)
        assert said.returncode == 2 and told in said.stderr, said.stderr
    alone = tmp_path / "calm"
    shutil.copytree(root / "receipts" / "calm", alone)
    said = verify(str(alone))
    assert said.returncode == 2 and "lies in no folder receipts/" in said.stderr


def test_an_archive_holds_and_one_digit_in_it_does_not(
    root: Path, tmp_path: Path, verify: Callable[..., Said], say: Callable[..., Said]
) -> None:
    path = tmp_path / "evidence.zip"
    said = say(root, "pack", "calm", "brisk", "--output", str(path))
    assert said.returncode == 0, said.stderr
    shutil.rmtree(root / "receipts")
    said = verify(str(path))
    assert said.returncode == 0 and said.stdout.count(": holds (") == 2, said.stderr
    said = verify(str(path), "brisk")
    assert said.returncode == 0 and said.stdout.count(": holds (") == 1
    room = tmp_path / "room"
    room.mkdir()
    parcel.unpack(path, room)
    victim = next(
        path for path in Campaign(room / "receipts" / "calm").paths() if "-r384-s" in path.name
    )
    text = victim.read_text()
    old = re.findall(r'"peak":(\d+)', text)[0]
    victim.write_text(text.replace(old, str(int(old) + 10**6)))
    with zipfile.ZipFile(path, "w") as made:
        for file in sorted(room.rglob("*")):
            made.write(file, file.relative_to(room).as_posix())
    said = verify(str(path), "--json")
    assert said.returncode == 8
    calm, brisk = sorted(json.loads(said.stdout), key=lambda row: bool(row["holds"]))
    assert (calm["campaign"], brisk["campaign"]) == ("calm", "brisk") and brisk["problems"] == []
    assert calm["source"] == str(path)
    places = {problem["place"] for problem in calm["problems"]}
    assert f"receipts/calm/{victim.name}" in places
    assert any(place.startswith("reports/calm.json ") for place in places)


def test_a_hostile_archive_is_exit_7_and_leaves_nothing(
    tmp_path: Path, verify: Callable[..., Said]
) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("receipts/x/campaign.json", "{}")
        made.writestr("receipts/../../../x", "{}")
    said = verify(str(path))
    assert said.returncode == 7 and "leads out of the folder it is opened in" in said.stderr
    path.write_bytes(b"no archive")
    assert verify(str(path)).returncode == 7


@pytest.mark.parametrize(
    "damage", ["a version to come", "patched data", "a place before the first"]
)
def test_an_archive_that_is_damaged_is_exit_7(
    tmp_path: Path, verify: Callable[..., Said], damage: str
) -> None:
    """Each makes the standard library raise another kind of error."""
    path = tmp_path / "evidence.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("receipts/x/campaign.json", "{}")
    data = bytearray(path.read_bytes())
    directory, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    if damage == "a version to come":
        data[directory + 6] = 99
    elif damage == "patched data":
        data[directory + 8] |= 0x20
    else:
        data[end + 16 : end + 20] = (0xFFFFFFF0).to_bytes(4, "little")
    path.write_bytes(data)
    said = verify(str(path))
    assert said.returncode == 7 and "no whole zip archive" in said.stderr, said.stderr


def test_a_folder_in_the_place_of_a_receipt_does_not_hold(
    root: Path, verify: Callable[..., Said]
) -> None:
    victim = Campaign(root / "receipts" / "calm").paths()[0]
    victim.unlink()
    (victim / "inside").mkdir(parents=True)
    said = verify(str(root), "--json")
    rows = {row["campaign"]: row for row in json.loads(said.stdout)}
    assert said.returncode == 8 and not rows["calm"]["holds"] and rows["brisk"]["holds"]


def test_what_an_archive_says_cannot_draw_on_the_terminal(
    root: Path, verify: Callable[..., Said]
) -> None:
    page = root / "reports" / "calm.md"
    page.write_text(page.read_text() + "\x1b[2J\x1b[1;1Hcalm: holds\u202e\n", encoding="utf-8")
    said = verify(str(root))
    assert said.returncode == 8 and "\x1b" not in said.stderr and "\u202e" not in said.stderr
    assert "\\x1b[2J" in said.stderr


def test_a_campaign_that_names_itself_elsewhere_writes_nothing_there(
    root: Path, say: Callable[..., Said]
) -> None:
    header = root / "receipts" / "calm" / "campaign.json"
    header.chmod(0o600)
    header.write_text(header.read_text().replace('"calm"', '"../../calm"', 1))
    said = say(root, "report", "calm")
    assert said.returncode != 0 and not (root.parent / "calm.md").exists(), said.stderr


def test_revisions_are_checked_as_they_are_committed(
    repository: Path, verify: Callable[..., Said]
) -> None:
    (repository / "reports" / "brisk.md").write_text("changed and not committed\n")
    before = git(repository, "status", "--porcelain")
    said = verify("HEAD")
    assert said.returncode == 0 and said.stdout.count(": holds (") == 2, said.stderr
    assert re.search(r"^HEAD \([0-9a-f]{12}\): calm: holds", said.stdout, re.M)
    said = verify("HEAD~1")
    assert said.returncode == 8 and "n=9" in said.stderr and "calm: holds" in said.stdout
    assert re.search(r"HEAD~1 \([0-9a-f]{12}\): brisk: reports/brisk.md:\d+: says", said.stderr)
    said = verify("HEAD~1", "calm", "main", "brisk")
    assert said.returncode == 0 and "main (" in said.stdout
    git(repository, "branch", "calm", "HEAD~1")
    assert "refs/heads/calm" in verify("refs/heads/calm", "brisk").stderr, (
        "a branch by its whole name"
    )
    assert verify("calm").returncode == 0, "a campaign goes before a branch"
    assert git(repository, "status", "--porcelain") == before
    said = verify("HEAD~1", "clam")
    assert said.returncode == 2 and "clam: no campaign in HEAD~1 (" in said.stderr
    assert "did you mean 'calm'?" in said.stderr


def test_a_word_that_git_would_take_for_an_option_is_none(
    repository: Path, verify: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = verify("--", "--output=x")
    assert said.returncode == 2 and "no revision begins with '-'" in said.stderr
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("git was asked"))
    for word in ("-x", "--all", "--exec-path=/x"):
        with pytest.raises(InputError, match="begins with '-'"):
            revision.commit_of(word, repository)


def test_what_is_no_commit_is_no_revision(repository: Path, tmp_path: Path) -> None:
    for word in ("no-such", "HEAD:reports", "^HEAD", "HEAD..HEAD", "HEAD\n", "a\0b", ""):
        assert revision.commit_of(word, repository) is None, word
    assert revision.commit_of("HEAD", tmp_path) is None
    assert revision.commit_of("HEAD", repository) == git(repository, "rev-parse", "HEAD")


def test_what_attributes_would_rewrite_is_taken_as_committed(
    repository: Path, tmp_path: Path
) -> None:
    """`git archive` would expand it: the committed bytes are what somebody signed."""
    (repository / ".gitattributes").write_text("* export-subst\n*.md eol=crlf text\n")
    (repository / "receipts" / "note.md").write_text("$Format:%H$\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "third")
    folder = tmp_path / "out"
    folder.mkdir()
    revision.extract(git(repository, "rev-parse", "HEAD"), repository, folder)
    assert (folder / "receipts" / "note.md").read_bytes() == b"$Format:%H$\n"
    assert not (folder / "notes.txt").exists() and (folder / "charts" / "calm").is_dir()


def test_links_and_submodules_in_a_revision_are_refused(
    repository: Path, verify: Callable[..., Said]
) -> None:
    (repository / "charts" / "calm" / "decode.svg").unlink()
    (repository / "charts" / "calm" / "decode.svg").symlink_to("../../notes.txt")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "third")
    said = verify("HEAD")
    assert said.returncode == 7 and "'charts/calm/decode.svg' is a symbolic link" in said.stderr
    git(
        repository,
        "update-index",
        "--add",
        "--cacheinfo",
        f"160000,{'1' * 40},charts/calm/decode.svg",
    )
    git(repository, "commit", "-qm", "fourth")
    assert "is a submodule" in verify("HEAD").stderr


def test_a_project_in_a_folder_of_a_repository(
    published: Path, tmp_path: Path, say: Callable[..., Said]
) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(published, whole / "bench")
    git(whole, "init", "-q", "-b", "main")
    git(whole, "add", ".")
    git(whole, "commit", "-qm", "first")
    said = say(whole / "bench", "verify", "main", "calm")
    assert said.returncode == 0, said.stderr
    said = say(whole, "verify", "main")
    assert said.returncode == 2 and "no receipts/ in it" in said.stderr
    assert say(whole, "verify", "--root", "bench", "main", "calm").returncode == 0
