from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import DataError, MissingExtra
from outpace.serve.crops import RandomCrop
from outpace.serve.images import decode
from outpace.serve.keeping import files_of
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.sources import open_source
from outpace.serve.verify import verify
from tests.serve.test_loader import WAYS

COUNT = 50


def test_without_the_package_its_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for name in ("state.json", "dataset_info.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(MissingExtra, match="'datasets'") as told:
        open_source(tmp_path)
    assert told.value.hint == "pip install 'outpace[huggingface]'"


def test_several_data_sets_are_named(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DataError, match="holds 2 data sets: train, test") as told:
        open_source(tmp_path)
    assert told.value.hint == f"name one of them: {tmp_path / 'train'}"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Sorted by class, of several files, with rows of many kinds."""
    datasets: Any = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    features = datasets.Features(
        image=datasets.Image(),
        label=datasets.ClassLabel(names=[f"class {i}" for i in range(10)]),
        weight=datasets.Value("float32"),
        tokens=datasets.Sequence(datasets.Value("int32")),
        ragged=datasets.Sequence(datasets.Value("int64")),
        array=datasets.Array2D((2, 3), "float32"),
        fixed=datasets.Sequence(datasets.Value("float64"), length=2),
        text=datasets.Value("string"),
        gaps=datasets.Value("int64"),
    )
    rows = {
        "image": [{"bytes": png(i), "path": None} for i in range(COUNT)],
        "label": [i // 5 for i in range(COUNT)],
        "weight": [i / 3 for i in range(COUNT)],
        "tokens": [[i, i + 1, i + 2] for i in range(COUNT)],
        "ragged": [[i] * (i % 3) for i in range(COUNT)],
        "array": [np.full((2, 3), i) for i in range(COUNT)],
        "fixed": [[i, -i] for i in range(COUNT)],
        "text": [f"row {i}" for i in range(COUNT)],
        "gaps": [i if i % 4 else None for i in range(COUNT)],
    }
    made = datasets.Dataset.from_dict(rows, features=features)
    made.save_to_disk(tmp_path / "saved", num_shards=4)
    return tmp_path / "saved"


def png(level: int) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (12, 10), (level, 0, 0)).save(data, "PNG")
    return data.getvalue()


def test_rows_keep_their_types(saved: Path) -> None:
    source = open_source(saved)
    assert len(source) == COUNT
    row = source[17]
    assert row["image"] == png(17)
    assert (row["label"], row["text"], row["gaps"]) == (3, "row 17", 17)
    assert source[16]["gaps"] is None
    kinds = {n: row[n].dtype.name for n in ("weight", "tokens", "ragged", "array", "fixed")}
    assert kinds == {
        "weight": "float32",
        "tokens": "int32",
        "ragged": "int64",
        "array": "float32",
        "fixed": "float64",
    }
    assert row["array"].shape == (2, 3)
    assert row["ragged"].tolist() == [17, 17]
    assert source.classes[3] == "class 3"  # type: ignore[attr-defined]
    with pytest.raises(IndexError):
        source[COUNT]


def test_rows_chosen_and_shuffled_before_they_were_saved(saved: Path, tmp_path: Path) -> None:
    import datasets

    some = datasets.load_from_disk(str(saved)).shuffle(seed=3).select(range(7))
    some.save_to_disk(tmp_path / "some")
    source = open_source(tmp_path / "some")
    assert [row["text"] for row in map(source.__getitem__, range(7))] == some["text"][:]


def test_batches_are_the_rows_put_together(saved: Path) -> None:
    names = ["label", "weight", "tokens", "array", "fixed"]
    whole = Loader(saved, 16, executor="none", drop_last=True)

    def some(row: Any) -> Any:
        return {n: row[n] for n in names}

    by_rows = Loader(saved, 16, executor="none", drop_last=True, transform=some)
    for one, other in zip(whole, by_rows, strict=True):
        assert all(one[n].dtype == other[n].dtype for n in names)
        assert all(torch.equal(one[n], other[n]) for n in names)
        assert isinstance(one["text"], list)
        assert isinstance(one["ragged"], list)


def test_a_column_with_gaps_is_a_list_in_all_batches(saved: Path) -> None:
    source: Any = open_source(saved)
    assert source.batch([0, 1])["gaps"] == [None, 1]
    assert source.batch([1, 2])["gaps"] == [1, 2]


def test_lists_with_gaps_are_lists_in_all_batches(saved: Path, tmp_path: Path) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"x": [[1.0, 2.0], [None, 3.0], [4.0, 5.0]]})
    rows.save_to_disk(tmp_path / "lists")
    source: Any = open_source(tmp_path / "lists")
    assert source.batch([0, 2])["x"] == [[1.0, 2.0], [4.0, 5.0]]
    assert source.batch([0, 1])["x"] == [[1.0, 2.0], [None, 3.0]]


@pytest.mark.parametrize(("kind", "workers"), WAYS)
def test_a_loader_shuffles_them_fully_and_decodes(saved: Path, kind: Any, workers: int) -> None:
    crop = RandomCrop(4, "image")

    def transform(row: Any, rng: np.random.Generator) -> Any:
        return {name: crop(row, rng)[name] for name in ("image", "label")}

    loader = Loader(saved, 10, transform=transform, executor=kind, workers=workers)
    batches = list(loader)
    loader.close()
    assert sorted(n for b in batches for n in b["label"].tolist()) == [i // 5 for i in range(COUNT)]
    assert len(set(batches[0]["label"].tolist())) > 4
    assert all(b["image"].shape == (10, 4, 4, 3) for b in batches)
    assert decode(open_source(saved)[9]["image"])[0, 0].tolist() == [9, 0, 0]


def test_they_pack_and_their_files_are_compared(saved: Path, tmp_path: Path) -> None:
    meta = pack(saved, tmp_path / "packed")
    assert (meta.count, meta.kind, meta.grade) == (COUNT, "records", "exact")
    assert meta.classes is not None
    packed, source = open_source(tmp_path / "packed"), open_source(saved)
    assert str(packed[8]) == str(source[8])
    (saved / "cache-0123.arrow").write_bytes(b"of the package")
    assert verify(tmp_path / "packed", lambda *_: None).source == "same"
    before = files_of(source)
    data = saved / "data-00002-of-00004.arrow"
    data.write_bytes(data.read_bytes() + b"x")
    assert verify(tmp_path / "packed", lambda *_: None).source == "changed"
    assert files_of(source) != before != ""


def test_images_may_be_made_smaller(saved: Path, tmp_path: Path) -> None:
    meta = pack(saved, tmp_path / "packed", resize=5)
    assert (meta.kind, meta.grade) == ("records", "learning")
    row = open_source(tmp_path / "packed")[20]
    assert decode(row["image"]).shape == (5, 6, 3)
    assert row["text"] == "row 20"


def test_a_data_set_object_is_taken_as_it_is(saved: Path) -> None:
    import datasets

    made = datasets.load_from_disk(str(saved)).select_columns(["tokens", "label"])
    loader = Loader(made.with_format("torch"), 10, executor="threads", workers=2)
    batches = list(loader)
    loader.close()
    assert sorted(int(row[0]) for b in batches for row in b["tokens"]) == list(range(COUNT))


def test_it_passes_process_borders(saved: Path) -> None:
    source = open_source(saved)
    assert pickle.loads(pickle.dumps(source))[30]["text"] == "row 30"


def test_a_broken_file_is_named(saved: Path) -> None:
    for path in saved.glob("data-*"):
        path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="saved"):
        open_source(saved)
