from __future__ import annotations

import pytest

from outpace.errors import DataError
from outpace.serve.parts import check_parts, told_apart


@pytest.mark.parametrize(
    ("names", "kind", "beside"),
    [
        (["a.tar", "b/c.TAR", "sizes.json", "README.md"], "tars", ["sizes.json", "README.md"]),
        (["part-0.parquet", "_SUCCESS", "_metadata"], "table", ["_SUCCESS", "_metadata"]),
        (["1.csv", "2.csv"], "table", []),
        (["train/0.parquet", "test/0.parquet"], "table", []),
        (["run/1.csv", "walk/1.csv", "README.md"], "files", []),
        (["1.jpg", "2.jpg", "labels.csv"], "files", []),
        (["1.jpg", "1.json", "1.txt"], "files", []),
        (["1.txt", "2.txt"], "files", []),
        (["a.tar", "1.jpg"], "files", []),
        ([], "files", []),
    ],
)
def test_what_files_are_together(names: list[str], kind: str, beside: list[str]) -> None:
    assert told_apart(names) == (kind, [name for name in names if name not in beside])


def test_texts_in_folders_of_their_own_are_not_left_out_for_a_table() -> None:
    texts = [f"{kind}/{i}.txt" for kind in ("neg", "pos") for i in range(2)]
    with pytest.raises(DataError, match=r"labels\.csv and, .* 4 files that may be samples: neg/0"):
        told_apart(["labels.csv", *texts])
    beside = ["README.txt", "_log/1.json", "_log/2.json", "train/notes.txt", "train/more.txt"]
    assert told_apart(["train/0.csv.parquet", *beside])[0] == "table"


@pytest.mark.parametrize(
    "names",
    [
        ["flights.csv"],
        ["0.csv", "1.csv", "10.csv"],
        ["train-00000-of-00002.parquet", "train-00001-of-00002.parquet"],
        [
            "part-00000-5c1c2a94-52fd-4d6c-9d8a-1a2b3c4d5e6f-c000.parquet",
            "part-00001-ffe1beef-aaaa-bbbb-cccc-0123456789ab-c000.parquet",
        ],
    ],
)
def test_parts_of_one_table(names: list[str]) -> None:
    check_parts("data", names)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train.csv", "test.csv"], "data holds 2 tables: train.csv, test.csv"),
        (["train-0.parquet", "test-0.parquet"], "data holds 2 tables"),
        (["a.csv", "a.parquet"], "data holds 2 tables"),
        ([f"{name}.csv" for name in "abcd"], r"4 tables: a.csv, b.csv, c.csv, \.\.\."),
        (["year=2025/0.parquet", "year=2026/0.parquet"], "tables in sub-folders: year=2025/0.par"),
    ],
)
def test_tables_that_are_no_parts_of_one(names: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        check_parts("data", names)
    assert "name one of" in str(error.value.hint)
