"""THE table of libraries' calls that open files in C: module, call, position and name of the path, and what
is done with it.
"""

from __future__ import annotations

from typing import NamedTuple

from outpace.seams.writes.places import Use


class Row(NamedTuple):
    """A call of a library that takes a path."""

    module: str
    call: str
    position: int
    keyword: str
    use: Use


ROWS = (
    # Below torch.save: that one another seam may wrap, and put back as it found it.
    Row("torch", "serialization._open_zipfile_writer", 0, "name_or_buffer", "write"),
    Row("torch", "_C.PyTorchFileWriter", 0, "file_name", "write"),
    Row("torch", "load", 0, "f", "read"),
    Row(
        "torch.export.pt2_archive._package",
        "PT2ArchiveReader.__init__",
        1,
        "archive_path_or_buffer",
        "read",
    ),
    Row("torch.package.package_importer", "PackageImporter.__init__", 1, "file_or_buffer", "read"),
    Row("torch.autograd.profiler", "profile.export_chrome_trace", 1, "path", "write"),
    Row("torchvision.io.image", "read_file", 0, "path", "read"),
    Row("torchvision.io.image", "write_file", 0, "filename", "write"),
    Row("torch", "jit.save", 1, "f", "write"),
    Row("torch", "jit._script.ScriptModule.save", 1, "f", "write"),
    Row("torch", "jit._script.RecursiveScriptModule.save", 1, "f", "write"),
    Row("torch", "jit.load", 0, "f", "read"),
    Row("safetensors.torch", "serialize_file", 1, "filename", "write"),
    Row("safetensors.torch", "safe_open", 0, "filename", "read"),
    Row("safetensors.numpy", "serialize_file", 1, "filename", "write"),
    Row("safetensors.numpy", "safe_open", 0, "filename", "read"),
    Row("safetensors", "safe_open", 0, "filename", "read"),
    Row("pyarrow", "memory_map", 0, "path", "read"),
    Row("pyarrow.parquet", "read_table", 0, "source", "read"),
    Row("pyarrow.parquet", "read_metadata", 0, "where", "read"),
    Row("pyarrow.parquet", "read_schema", 0, "where", "read"),
    Row("pyarrow.parquet.core", "ParquetWriter.__init__", 1, "where", "write"),
    Row("pyarrow.parquet.core", "ParquetFile.__init__", 1, "source", "read"),
    Row("pyarrow.csv", "write_csv", 1, "output_file", "write"),
    Row("pyarrow.csv", "read_csv", 0, "input_file", "read"),
    Row("pyarrow.csv", "open_csv", 0, "input_file", "read"),
    Row("pyarrow.feather", "write_feather", 1, "dest", "write"),
    Row("pyarrow.feather", "read_table", 0, "source", "read"),
    Row("pyarrow.feather", "read_feather", 0, "source", "read"),
    Row("pyarrow.ipc", "new_file", 0, "sink", "write"),
    Row("pyarrow.ipc", "new_stream", 0, "sink", "write"),
    Row("pyarrow.ipc", "open_file", 0, "source", "read"),
    Row("pyarrow.ipc", "open_stream", 0, "source", "read"),
    Row("faiss", "write_index", 1, "f", "write"),
    Row("faiss", "read_index", 0, "f", "read"),
    Row("dbm.gnu", "open", 0, "filename", "change"),
    Row("cv2", "imwrite", 0, "filename", "write"),
    Row("cv2", "imread", 0, "filename", "read"),
    # What save_pretrained of a tokenizer calls, as Transformers' Trainer does with each checkpoint.
    Row("tokenizers", "Tokenizer.save", 1, "path", "write"),
    Row("tokenizers", "Tokenizer.from_file", 0, "path", "read"),
    Row("tokenizers", "Tokenizer.train", 1, "files", "read"),
    Row("tokenizers.models", "Model.save", 1, "folder", "folder"),
    *(
        Row("tokenizers.models", f"{kind}.{how}", position, keyword, "read")
        for how in ("from_file", "read_file")
        for kind, position, keyword in (
            ("BPE", 0, "vocab"),
            ("BPE", 1, "merges"),
            ("WordPiece", 0, "vocab"),
            ("WordLevel", 0, "vocab"),
        )
    ),
    *(
        Row("tokenizers.implementations", f"{kind}.__init__", position, keyword, "read")
        for kind, position, keyword in (
            ("ByteLevelBPETokenizer", 1, "vocab"),
            ("ByteLevelBPETokenizer", 2, "merges"),
            ("CharBPETokenizer", 1, "vocab"),
            ("CharBPETokenizer", 2, "merges"),
            ("SentencePieceBPETokenizer", 1, "vocab"),
            ("SentencePieceBPETokenizer", 2, "merges"),
            ("BertWordPieceTokenizer", 1, "vocab"),
        )
    ),
    Row("sentencepiece", "SentencePieceProcessor.LoadFromFile", 1, "arg", "read"),
    *(
        Row("polars", f"DataFrame.write_{kind}", 1, "file", "write")
        for kind in ("csv", "parquet", "ipc", "json", "ndjson")
    ),
    *(
        Row("polars", f"LazyFrame.sink_{kind}", 1, "path", "write")
        for kind in ("csv", "parquet", "ipc", "ndjson")
    ),
    *(Row("polars", f"read_{kind}", 0, "source", "read") for kind in ("csv", "ipc", "json")),
    Row("polars", "read_parquet", 0, "source", "files"),
    Row("polars", "read_ndjson", 0, "source", "files"),
    *(
        Row("polars", f"scan_{kind}", 0, "source", "files")
        for kind in ("csv", "parquet", "ipc", "ndjson")
    ),
)
