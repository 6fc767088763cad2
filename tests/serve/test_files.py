from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from outpace.errors import DataError
from outpace.serve.files import Files
from outpace.serve.listing import Listing, changed, list_files, names_below


def write(root: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(
        tmp_path / "data",
        dog__b_dot_JPEG=b"2",
        cat__a_dot_1_dot_jpg=b"1",
        cat__deep__c_dot_png=b"3",
    )


def test_a_sample_a_file_in_order_of_their_paths(folder: Path) -> None:
    files = Files(folder)
    assert files.classes == ("cat", "dog")
    assert list(files) == [  # type: ignore[call-overload]
        {"__key__": "cat/a.1", "jpg": b"1", "cls": 0},
        {"__key__": "cat/deep/c", "png": b"3", "cls": 0},
        {"__key__": "dog/b", "jpg": b"2", "cls": 1},
    ]
    assert files.where(2) == str(folder / "dog/b.JPEG")
    assert files[-1] == files[2]
    assert pickle.loads(pickle.dumps(files))[1] == files[1]


def test_a_file_named_as_a_class_keeps_its_content(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", cat__1_dot_cls=b"7", dog__2_dot_jpg=b"2")
    assert Files(folder)[0] == {"__key__": "cat/1", "data": b"7", "cls": 0}
    assert Files(write(tmp_path / "flat", x_dot_cls=b"7"))[0] == {"__key__": "x", "cls": b"7"}


def test_without_folders_there_are_no_classes(tmp_path: Path) -> None:
    files = Files(write(tmp_path, b_dot_txt=b"b", a=b"a"))
    assert files.classes is None
    assert files[0] == {"__key__": "a", "data": b"a"}
    assert files[1] == {"__key__": "b", "txt": b"b"}


def test_hidden_files_are_no_data(folder: Path) -> None:
    write(folder, _dot_DS_Store=b"", _dot_cache__x_dot_jpg=b"", cat___dot_hidden=b"")
    assert len(Files(folder)) == 3


def test_links_are_followed_but_not_upwards(folder: Path) -> None:
    (folder / "cat" / "all").symlink_to(folder, target_is_directory=True)
    (folder / "bird").symlink_to(folder / "dog", target_is_directory=True)
    assert names_below(str(folder)) == [
        "bird/b.JPEG",
        "cat/a.1.jpg",
        "cat/deep/c.png",
        "dog/b.JPEG",
    ]


def test_links_to_each_other_are_followed_once(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.jpg").write_bytes(b"")
        (tmp_path / name / "link").symlink_to(Path("..", other), target_is_directory=True)
    assert names_below(str(tmp_path)) == ["a/a.jpg", "a/link/b.jpg", "b/b.jpg", "b/link/a.jpg"]


def test_what_cannot_be_read_is_named(folder: Path, tmp_path: Path) -> None:
    files = Files(folder)
    (folder / "dog/b.JPEG").unlink()
    with pytest.raises(DataError, match=r"dog/b\.JPEG: No such file"):
        files[2]
    with pytest.raises(DataError, match="no files"):
        Files(write(tmp_path / "empty", _dot_hidden=b""))
    with pytest.raises(DataError, match="nowhere: No such file"):
        Files(tmp_path / "nowhere")


def test_a_listing_tells_what_has_changed(folder: Path, tmp_path: Path) -> None:
    listing = list_files(str(folder), names_below(str(folder)))
    assert listing.bytes == 3
    listing.save(tmp_path)
    then = Listing.load(tmp_path)
    assert then.digest() == listing.digest()
    assert changed(then, folder=True) == []
    write(folder, dog__new_dot_jpg=b"new")
    (folder / "cat/a.1.jpg").unlink()
    os.utime(folder / "cat/deep/c.png", ns=(1, 1))
    assert changed(then, folder=False) == ["cat/a.1.jpg", "cat/deep/c.png"]
    assert changed(then, folder=True) == ["cat/a.1.jpg", "cat/deep/c.png", "dog/new.jpg"]
    for name in ("cat/deep/c.png", "dog/b.JPEG"):
        (folder / name).unlink()
    assert changed(then, folder=True) is None
    assert list_files(str(folder), then.names).digest() != then.digest()
