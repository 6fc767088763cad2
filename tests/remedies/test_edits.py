"""Edits of a script's text: what a person would have typed, and a text that always parses."""

from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image

from outpace.records.evidence import Evidence
from outpace.remedies import edits
from outpace.remedies.cache_samples import CacheSamples
from outpace.remedies.catalog import all_remedies
from outpace.remedies.channels_last import ChannelsLast
from outpace.remedies.decode_jpeg import DecodeJpeg
from outpace.remedies.edits.script import Script
from outpace.remedies.fetch_threads import FetchThreads
from outpace.remedies.fused_optimizer import FusedOptimizer
from outpace.remedies.loader_workers import LoaderWorkers
from outpace.remedies.patch import patched
from outpace.remedies.persistent_workers import PersistentWorkers
from outpace.remedies.prefetch import Prefetch
from outpace.remedies.room import edit_room
from tests.remedies.some_evidence import ALL, IMAGES

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("image_classifier.py", "char_gpt.py", "flights.py", "mnist_cnn.py")
SOURCES = {name: (EXAMPLES / name).read_text() for name in NAMES}

STRANGE = [
    "",
    "x = 1",
    "def broken(:\n    pass\n",
    (
        "import torch; x = 1\nfrom torch.utils.data import (\n    DataLoader,  # the loader\n)\n"
        "loader = DataLoader(data, 4, True, **more); y = model(x)\n"
    ),
    "import torch\nmodel = Net()\nif x: loss = model(x)\nelse:\n\tloss = model(y)\n",
    "import torch\r\nmodel = Net()\r\nfor x in y:\r\n\tloss = model(x)\r\n\tloss.backward()\r\n",
    'import torch\nmodel = Net()\nout = model("""a\nb""")\nloss = f(out)\n',
    "from torch.utils.data import DataLoader\nü = 'é'; train = DataLoader(ü, shuffle=True)",
    "from torch.utils.data import *\ntrain = DataLoader((data), shuffle=(True))\n",
    "import torch\nmodel = Net()\nprint(f'{model(x)} {loss.item()}')\ntotal += loss.item()",
    "class A(Dataset):\n  def __getitem__(self, i): return i\n",
    "@decorated\nclass A(Dataset):\n    def __getitem__(self, i):\n        return i",
]
TEXTS = [*SOURCES.values(), *STRANGE]
EDITS: list[Callable[[str, str], str]] = [
    lambda s, w: edits.set_loader_arguments(s, w, {"num_workers": "2", "shuffle": None}),
    lambda s, w: edits.set_loader_arguments(s, w, {"batch_size": "8", "pin_memory": "True"}),
    lambda s, w: edits.wrap_data_set(s, w, "in_memory"),
    lambda s, w: edits.wrap_loop(s, w, "ahead"),
    edits.draw_slices,
    edits.copy_without_waiting,
    lambda s, w: edits.under_autocast(s, w, "cpu", "bfloat16"),
    lambda s, w: edits.after_model(s, w, "{name}.compile()"),
    lambda s, w: edits.set_optimizer_arguments(s, "AdamW", {"fused": "True"}),
    lambda s, w: edits.set_optimizer_arguments(s, "SGD", {"momentum": "0.8", "lr": None}),
    lambda s, w: edits.insert_after_imports(s, "torch.set_num_threads(1)"),
    lambda s, w: edits.insert_after_imports(s, "def ahead(batches):\n    return batches"),
    lambda s, w: edits.insert_before_imports(s, "import os\n\nos.environ['A'] = '1'"),
    lambda s, w: edits.add_import(s, "torch.utils.data", "TensorDataset"),
    lambda s, w: edits.add_import(s, "functools"),
    lambda s, w: edits.open_images_by(s, "open_jpeg"),
    edits.keep_on_device,
    lambda s, w: edits.gradients_to_none(s),
    lambda s, w: edits.decorate(s, w, "@torch.no_grad()"),
    lambda s, w: edits.add_method(s, "Rows", "__getitem__", "def many(self):\n    return 1"),
]


MUCH = {"limit_mib": 1 << 30}
OF_OTHERS = {5, 9, 13, *range(15, 20)}
"""those that have nothing to do in mnist_cnn.py"""


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@settings(max_examples=150)
@given(
    text=st.sampled_from(TEXTS),
    steps=st.lists(st.tuples(st.sampled_from(EDITS), st.integers(0, 170)), max_size=6),
)
def test_edits_always_parse(text: str, steps: list[tuple[Callable[[str, str], str], int]]) -> None:
    for edit, line in steps:
        changed = edit(text, f"train.py:{line}")
        assert parses(changed) or changed == text
        text = changed


@settings(max_examples=60)
@given(
    name=st.sampled_from(NAMES),
    chosen=st.lists(st.sampled_from([k.name for k in all_remedies()]), max_size=8, unique=True),
    evidence=st.sampled_from(sorted(ALL)),
)
def test_edits_of_many_remedies_parse(name: str, chosen: list[str], evidence: str) -> None:
    from outpace.remedies.catalog import remedy

    facts = ALL[evidence]
    remedies = [(each, remedy(each).settings(facts)) for each in chosen]
    assert parses(patched(SOURCES[name], facts, remedies, "train.py"))


@pytest.mark.parametrize("index", range(len(EDITS)))
def test_a_second_time_changes_nothing(index: int) -> None:
    """An edit that is made already is not made on top of itself."""
    source = SOURCES["mnist_cnn.py"]
    where = f"train.py:{line_with(source, 'loss = F.cross_entropy(model')}"
    once = EDITS[index](source, where)
    where = edits.moved(where, source, once) or ""
    twice = EDITS[index](once, where)
    assert (once == source) is (index in OF_OTHERS)
    assert twice == once


def line_with(source: str, part: str) -> int:
    return next(i for i, line in enumerate(source.splitlines(), 1) if part in line)


def dedented(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_loader_arguments() -> None:
    source = "train = DataLoader(data, batch_size=4, shuffle=True)  # all\n"
    assert edits.set_loader_arguments(source, None, {"num_workers": "2", "shuffle": None}) == (
        "train = DataLoader(data, batch_size=4, num_workers=2)  # all\n"
    )
    assert edits.set_loader_arguments(source, None, {"batch_size": "8"}) == (
        "train = DataLoader(data, batch_size=8, shuffle=True)  # all\n"
    )
    positional = "train = DataLoader(data, 4, True, None, None, 3)\n"
    assert edits.set_loader_arguments(positional, None, {"num_workers": "0"}) == (
        "train = DataLoader(data, 4, True, None, None, 0)\n"
    )
    unsure = "train = DataLoader(data, shuffle=True, **options)\n"
    assert edits.set_loader_arguments(unsure, None, {"num_workers": "0"}) == unsure


def test_loader_arguments_on_lines_of_their_own() -> None:
    source = dedented(
        """
        train = DataLoader(
            data,
            batch_size=4,
            shuffle=True,  # in another order each epoch
            num_workers=0,
        )
        """
    )
    changed = edits.set_loader_arguments(
        source, "train.py:3", {"pin_memory": "True", "num_workers": None}
    )
    assert changed == source.replace("num_workers=0", "pin_memory=True")


def test_only_the_training_loader_is_changed() -> None:
    source = dedented(
        """
        train_loader = DataLoader(data, batch_size=4)
        val_loader = DataLoader(rest, batch_size=4)
        """
    )
    assert (
        edits.set_loader_arguments(source, None, {"num_workers": "1"}).splitlines()[1]
        == (source.splitlines()[1])
    )
    second = edits.set_loader_arguments(source, "train.py:2", {"num_workers": "1"})
    assert second.splitlines()[0] == source.splitlines()[0]
    assert "num_workers" in second


def test_a_long_call_is_folded() -> None:
    source = "    x = 1\n".lstrip() + f"train = DataLoader({'a' * 70}, shuffle=True)\n"
    changed = edits.set_loader_arguments(source, None, {"num_workers": "2"})
    assert changed.splitlines()[1:] == [
        "train = DataLoader(",
        f"    {'a' * 70}, shuffle=True, num_workers=2",
        ")",
    ]


def test_autocast_is_of_the_models_call_alone() -> None:
    source = dedented(
        """
        import torch
        model = Net()
        for x, y in loader:
            out = model(
                x
            )
            # how far off
            loss = F.mse_loss(out, y)
            loss.backward()
        """
    )
    changed = edits.under_autocast(source, "train.py:5", "cuda", "bfloat16")
    assert changed == dedented(
        """
        import torch
        model = Net()
        for x, y in loader:
            with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
                out = model(
                    x
                )
            out = out.float()
            # how far off
            loss = F.mse_loss(out, y)
            loss.backward()
        """
    )
    assert edits.under_autocast(changed, "train.py:6", "cuda", "bfloat16") == changed


@pytest.mark.parametrize(
    "given",
    ["loss = F.cross_entropy(model(x), y)", "loss = criterion(model(x).squeeze(1), y)"],
)
def test_a_loss_of_what_the_model_gives_is_computed_in_float32(given: str) -> None:
    source = f"import torch\nmodel = Net()\nfor x, y in loader:\n    {given}\n"
    changed = edits.under_autocast(source, "train.py:4", "cpu", "bfloat16")
    assert changed == (
        "import torch\nmodel = Net()\nfor x, y in loader:\n"
        '    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):\n'
        "        output = model(x)\n"
        f"    {given.replace('model(x)', 'output.float()')}\n"
    )
    at = edits.moved("train.py:4", source, changed)
    assert "model.compile()" in edits.after_model(changed, at, "{name}.compile()")
    assert edits.under_autocast(changed, at, "cpu", "bfloat16") == changed


@pytest.mark.parametrize(
    "lines",
    [
        "out = model(x)\n    loss = out.loss",
        "out = model(x)\n    loss = criterion(out['logits'], y)",
        "out = model(x)\n    mean, spread = out",
        "mean, spread = model(x)",
        "loss = criterion(model(x)[0], y)",
        "loss = model(x).loss",
        "out = model(x)\n    losses = set_loss(out, y)",
        "losses = set_loss(model(x), y)",
        "found = [model(each) for each in x]",
        "loss = criterion(model(x) if warm else rough(x), y)",
    ],
)
def test_autocast_is_left_out_where_it_may_be_no_tensor(lines: str) -> None:
    source = f"import torch\nmodel = Net()\nfor x, y in loader:\n    {lines}\n"
    assert edits.under_autocast(source, "train.py:4", "cpu", "bfloat16") == source


@pytest.mark.parametrize(
    "lines",
    [
        "loss = model(x, y)\n    total += loss.item()\n    loss.backward()",
        "out = model(x)\n    B, T, C = out.shape\n    loss = criterion(out.view(B * T, C), y)",
        "out = model(x)\n    sim = out @ out.T / 0.07\n    loss = criterion(sim, y)",
        "out = model(x)\n    loss = criterion(out, y)\n    right += (out.argmax(1) == y).sum()",
    ],
)
def test_what_a_model_gives_is_in_float32_again(lines: str) -> None:
    source = f"import torch\nmodel = Net()\nfor x, y in loader:\n    {lines}\n"
    changed = edits.under_autocast(source, "train.py:4", "cpu", "bfloat16")
    name = lines.split(maxsplit=1)[0]
    assert f"    {name} = {name}.float()\n" in changed


def test_a_loss_of_torchs_is_known_by_its_class() -> None:
    source = (
        "import torch\nmodel = Net()\ncriterion = nn.BCELoss()\nfor x, y in loader:\n"
        "    out = model(x)\n    loss = criterion(out, y)\n"
    )
    changed = edits.under_autocast(source, "train.py:5", "cuda", "bfloat16")
    assert "out = out.float()\n    loss = criterion(out, y)" in changed
    own = source.replace("nn.BCELoss()", "SetLoss")
    assert edits.under_autocast(own, "train.py:5", "cuda", "bfloat16") == own


def test_autocast_leaves_text_over_several_lines_alone() -> None:
    source = 'import torch\nmodel = Net()\nout = model("""a\nb""")\n'
    assert edits.under_autocast(source, "train.py:3", "cpu", "bfloat16") == source


def test_a_line_after_the_model() -> None:
    source = SOURCES["mnist_cnn.py"]
    where = f"mnist_cnn.py:{line_with(source, 'loss = F.cross')}"
    changed = edits.after_model(source, where, "{name}.compile()")
    assert "    model = CNN()\n    model.compile()\n    optimizer =" in changed
    two = source.replace("    model = CNN()\n", "    if big:\n        model = CNN()\n    else:\n"
                         "        model = CNN()\n")  # fmt: skip
    where = f"mnist_cnn.py:{line_with(two, 'loss = F.cross')}"
    assert edits.after_model(two, where, "{name}.compile()") == two, "unsure which"


def test_a_model_that_is_made_again_for_a_test_gets_no_line() -> None:
    source = (
        "import torch\nmodel = Net().to(device)\nmodel = DDP(model)\nfor x, y in loader:\n"
        "    loss = criterion(model(x), y)\n"
    )
    changed = edits.after_model(source, "train.py:5", "{name}.compile()")
    assert changed.startswith(
        "import torch\nmodel = Net().to(device)\nmodel = DDP(model)\nmodel.compile()"
    )
    again = source + "model = Net().to(device)\nmodel.load_state_dict(torch.load(path))\n"
    assert edits.after_model(again, "train.py:5", "{name}.compile()") == again


@pytest.mark.parametrize("asked", ["sampler", "batch_sampler", "batch_size"])
def test_slices_are_not_drawn_where_a_script_asks_for_what_they_change(asked: str) -> None:
    source = (
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "train = DataLoader(data, batch_size=4)\nfor x in train:\n    pass\n"
    )
    assert "BatchSampler" in edits.draw_slices(source, "train.py:3")
    uses = source + f"print(len(train.{asked}))\n"
    assert edits.draw_slices(uses, "train.py:3") == uses


def test_a_copy_to_the_cpu_is_waited_for() -> None:
    source = (
        "import torch\nfrom torch.utils.data import DataLoader\ntrain = DataLoader(data)\n"
        "for x, y in train:\n    x = x.to(device)\n    seen.append(y.to('cpu').numpy())\n"
    )
    changed = edits.copy_without_waiting(source, "train.py:3")
    assert "x.to(device, non_blocking=True)" in changed
    assert "y.to('cpu').numpy()" in changed


def test_imports_find_their_place() -> None:
    source = dedented(
        '''
        """Docs."""

        from __future__ import annotations

        import argparse
        import random

        import torch
        from torch.utils.data import DataLoader
        '''
    )
    changed = edits.add_import(source, "os")
    assert "import argparse\nimport os\nimport random" in changed
    changed = edits.add_import(changed, "concurrent.futures", "ThreadPoolExecutor")
    assert "import random\nfrom concurrent.futures import ThreadPoolExecutor\n\n" in changed
    changed = edits.add_import(changed, "torch.utils.data", "TensorDataset")
    assert "from torch.utils.data import DataLoader, TensorDataset\n" in changed
    assert edits.add_import(changed, "torch.utils.data", "TensorDataset") == changed
    changed = edits.insert_before_imports(changed, "import os\n\nos.environ['A'] = 'b'")
    assert changed.index("__future__") < changed.index("environ") < changed.index("argparse")


def test_no_gradients_where_it_validates() -> None:
    source = SOURCES["mnist_cnn.py"]
    line = line_with(source, "correct += (model(images)")
    changed = edits.decorate(source, f"mnist_cnn.py:{line}", "@torch.no_grad()")
    assert "@torch.no_grad()\ndef evaluate(model, loader):\n" in changed
    training = line_with(source, "loss = F.cross")
    assert edits.decorate(source, f"x.py:{training}", "@torch.no_grad()") == source


def test_gradients_are_not_taken_from_a_function_that_the_training_calls_too() -> None:
    source = "class A:\n    @staticmethod\n    def loss(model, x):\n        return model(x)\n"
    assert edits.decorate(source, "a.py:4", "@torch.no_grad()", trains="a.py:4") == source
    changed = edits.decorate(source, "a.py:4", "@torch.no_grad()", trains="a.py:9")
    assert "    @staticmethod\n    @torch.no_grad()\n    def loss" in changed


def test_single_calls() -> None:
    source = 'image = Image.open(files[0]).convert("RGB")\nother = Image.open(x).convert("L")\n'
    assert edits.open_images_by(source, "fast") == source.replace(
        'Image.open(files[0]).convert("RGB")', "fast(files[0])"
    )
    assert edits.keep_on_device("total += loss.item()\n", "a.py:1") == "total += loss.detach()\n"
    assert edits.keep_on_device("total += loss.item()\n", "a.py:2") == "total += loss.item()\n"
    assert edits.keep_on_device("total += loss.item( )\n", "a.py:1") == "total += loss.detach()\n"
    assert edits.gradients_to_none("o.zero_grad(set_to_none=False)\n") == (
        "o.zero_grad(set_to_none=True)\n"
    )
    seeking = "autograd.set_detect_anomaly(True)\nwith autograd.detect_anomaly(check_nan=False):\n    pass\n"
    assert edits.without_anomaly_detection(seeking) == (
        "autograd.set_detect_anomaly(False)\nwith autograd.set_detect_anomaly(False):\n    pass\n"
    )
    alone = "with detect_anomaly():\n    pass\n"
    assert edits.without_anomaly_detection(alone) == alone, "the other name is not imported"
    again = (
        "from torch.utils.checkpoint import checkpoint as again\nimport torch.utils.checkpoint as cp\n"
        "x = again(block, x, mask, use_reentrant=False)\n"
        "y = cp.checkpoint(net[0], x, scale=2, use_reentrant=True)\n"
        "model.gradient_checkpointing_enable({})\nz = checkpoint(block, x)\n"
    )
    assert edits.without_checkpointing(again).splitlines()[2:] == [
        "x = block(x, mask)",
        "y = net[0](x, scale=2)",
        "model.gradient_checkpointing_disable()",
        "z = checkpoint(block, x)",
    ]
    own = "import torch.utils.checkpoint as cp\n"
    own += "y = cp.checkpoint(net, x, context_fn=seen, use_reentrant=False)\n"
    assert edits.without_checkpointing(own) == own, "what the context sets is needed"
    segments = "from torch.utils.checkpoint import checkpoint_sequential\n"
    segments += "x = checkpoint_sequential(net.blocks, 2, x, use_reentrant=False)\n"
    assert edits.without_checkpointing(segments) == segments
    loop = "train = DataLoader(d, shuffle=True)\nfor x, y in train:\n    x = x.to(device)\n"
    assert edits.copy_without_waiting(loop, None).endswith("x.to(device, non_blocking=True)\n")
    kept = loop.replace("device", "torch.float32")
    assert edits.copy_without_waiting(kept, None) == kept


def test_slices_are_drawn_in_the_same_order() -> None:
    source = dedented(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        torch.manual_seed(0)
        data = TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))
        train_loader = DataLoader(data, batch_size=6, shuffle=True)
        batches = [[t.tolist() for t in batch] for _ in range(2) for batch in train_loader]
        """
    )
    changed = edits.draw_slices(source, "train.py:5")
    assert "BatchSampler(RandomSampler(data), 6, False)" in changed
    assert results(source)["batches"] == results(changed)["batches"]


def test_samples_are_kept_in_the_same_order() -> None:
    source = dedented(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Squares(Dataset):
            def __len__(self):
                return 20
            def __getitem__(self, index):
                return torch.tensor(index * index), index
        torch.manual_seed(0)
        train_loader = DataLoader(Squares(), batch_size=6, shuffle=True)
        batches = []
        for epoch in range(2):
            for squares, index in train_loader:
                batches.append((squares.tolist(), index.tolist()))
        """
    )
    for name in ("cache_samples", "prefetch", "fetch_threads"):
        kind = next(k for k in all_remedies() if k.name == name)()
        facts = anywhere(ALL["rows"])
        facts = replace(facts, input=replace(facts.input, drawn_by="Squares"))
        changed = kind.edit(source, facts, kind.settings(facts))
        assert changed != source
        assert results(source)["batches"] == results(changed)["batches"], name


def test_a_batch_that_is_none_ends_no_epoch() -> None:
    """As a collate function gives where none of its samples could be read."""
    source = dedented(
        """
        from torch.utils.data import DataLoader
        def some(samples):
            return samples if max(samples) > 6 else None
        train_loader = DataLoader(range(12), batch_size=4, collate_fn=some)
        batches = []
        for batch in train_loader:
            batches.append(batch)
        """
    )
    changed = Prefetch().edit(source, anywhere(ALL["rows"]), {"batches": 3})
    assert changed != source
    assert (
        results(source)["batches"]
        == results(changed)["batches"]
        == [None, [4, 5, 6, 7], [8, 9, 10, 11]]
    )


def test_only_the_class_that_draws_the_samples_has_them_drawn_by_threads() -> None:
    source = dedented(
        """
        from torchvision.datasets import ImageFolder
        class Vocabulary:
            def __getitem__(self, word):
                return 0
        train_loader = DataLoader(ImageFolder("x"), batch_size=4, num_workers=2)
        """
    )
    facts = anywhere(ALL["rows"])
    facts = replace(facts, input=replace(facts.input, workers=2, drawn_by="DatasetFolder"))
    assert FetchThreads().edit(source, facts, FetchThreads().settings(facts)) == source


def test_a_file_that_is_broken_is_pillows_to_read(tmp_path: Path) -> None:
    pytest.importorskip("simplejpeg")
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    source = dedented(
        f"""
        from PIL import Image, ImageFile
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            found = Image.open({str(tmp_path / "a.jpg")!r}).convert("RGB").tobytes()
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = False
        """
    )
    facts = ALL["images"]
    assert facts.input.images is not None
    images = replace(facts.input.images, jpeg_share=1.0)
    facts = replace(facts, input=replace(facts.input, images=images))
    changed = DecodeJpeg().edit(source, facts, {})
    assert "simplejpeg.decode_jpeg(" in changed
    assert results(source)["found"] == results(changed)["found"]


def test_what_the_edit_of_a_remedy_would_do_otherwise_than_its_trial_is_left_out() -> None:
    """A video model's weights, and sparse gradients beside dense ones."""
    facts = ALL["images"]
    source = "import torch\nmodel = Net()\nloss = model(x)\n"
    compute = replace(facts.compute, where="train.py:3")
    assert ChannelsLast().edit(source, replace(facts, compute=compute), {}) != source
    video = replace(facts, compute=replace(compute, volumes=True))
    assert ChannelsLast().edit(source, video, {}) == source
    source = f"import torch\no = torch.optim.{compute.optimizer}(p, lr=1e-3)\n"
    sparse = replace(facts, compute=replace(compute, fusible=False))
    assert FusedOptimizer().edit(source, sparse, {"how": "fused"}) == source
    assert FusedOptimizer().edit(source, sparse, {"how": "foreach"}) != source


def anywhere(evidence: Evidence) -> Evidence:
    """Evidence that does not know where the loader is made."""
    return replace(evidence, input=replace(evidence.input, where=None))


def results(source: str) -> dict[str, object]:
    """What a script leaves behind."""
    space: dict[str, object] = {}
    exec(compile(source, "train.py", "exec"), space)  # noqa: S102
    return space


def test_places_are_followed_through_edits() -> None:
    source = SOURCES["image_classifier.py"]
    loss = line_with(source, "loss = F.cross")
    changed = edits.insert_before_imports(source, "import os")
    changed = edits.insert_after_imports(changed, "def ahead(batches):\n    return batches")
    changed = edits.under_autocast(
        changed, edits.moved(f"a.py:{loss}", source, changed), "cpu", "bfloat16"
    )
    at = edits.moved(f"a.py:{loss}", source, changed)
    assert at == f"a.py:{line_with(changed, 'with torch.autocast')}", (
        "what it has become begins there"
    )
    assert edits.moved(None, source, changed) is None


def test_a_form_feed_ends_no_line() -> None:
    """As emacs and the GNU style set pages apart: Python counts the line on."""
    source = "import torch\n\x0c\nfirst = 1\nlast = 2  # \x0b, \u2028\nloss = 3\n"
    changed = edits.insert_before_imports(source, "import os")
    at = edits.moved("a.py:5", source, changed)
    assert at == f"a.py:{changed[: changed.index('loss')].count(chr(10)) + 1}"


def test_all_remedies_together_on_an_example() -> None:
    """Together they give a script that still parses and has each change once."""
    source = SOURCES["image_classifier.py"]
    facts = ALL["images"]
    names = ["decode_jpeg", "cache_decoded", "bf16", "channels_last", "prefetch", "wait_policy"]
    from outpace.remedies.catalog import remedy

    loader, model = line_with(source, "train_loader = "), line_with(source, "loss = F.cross")
    facts = replace(
        facts,
        input=replace(facts.input, where=f"image_classifier.py:{loader}"),
        compute=replace(facts.compute, where=f"image_classifier.py:{model}"),
    )
    remedies = [(name, remedy(name).settings(facts)) for name in names]
    changed = patched(source, facts, remedies, "image_classifier.py")
    for part in (
        "with torch.autocast(",
        "model = model.to(memory_format=torch.channels_last)",
        "in Ahead(train_loader):",
        'os.environ.setdefault("OMP_WAIT_POLICY", "passive")',
        "simplejpeg.decode_jpeg(",
        "import simplejpeg",
        "def opened_once(",
    ):
        assert changed.count(part) == 1, part
    compile(changed, "image_classifier.py", "exec")


def test_a_script_knows_its_lines() -> None:
    script = Script("é = 1; b = [\n  2,\n]\n")
    assert [script.of(s) for s in script.every(ast.Assign)] == ["é = 1", "b = [\n  2,\n]"]
    assert script.unit == "    "
    with pytest.raises(ValueError, match="does not parse"):
        Script("def")


LATE_IMPORT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
train_loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, shuffle=True)
total = [float(x.sum()) for (x,) in train_loader]
for (x,) in train_loader:
    total.append(float(x.sum()))
import statistics
print(statistics.mean(total))
"""


def test_definitions_come_before_their_use_though_an_import_comes_later() -> None:
    """As where the cells of a notebook were exported."""
    changed = edits.wrap_loop(LATE_IMPORT, None, "ahead")
    changed = edits.insert_after_imports(changed, "def ahead(batches):\n    yield from batches")
    assert len(results(changed)["total"]) == len(results(LATE_IMPORT)["total"])  # type: ignore[arg-type]
    wrapped = edits.wrap_data_set(LATE_IMPORT, None, "kept")
    wrapped = edits.insert_after_imports(wrapped, "def kept(data):\n    return list(data)")
    assert results(wrapped)["total"]


@pytest.mark.parametrize(
    "source",
    [
        "from torch import nn, optim\nmodel = nn.Linear(2, 1)\n",
        "def main():\n    import torch\nmain()\n",
        '#!/usr/bin/env python\n"""It trains."""\n\nfrom __future__ import annotations\n\nmodel = None\n',
    ],
)
def test_torch_is_imported_where_a_line_needs_it(source: str) -> None:
    changed = edits.insert_after_imports(source, "torch.set_float32_matmul_precision('high')")
    assert "torch" in results(changed)
    first = source.partition("\n")[0]
    assert not first.startswith("#") or changed.startswith(first)


def sets_threads_at(line: int | None) -> Evidence:
    where = None if line is None else f"train.py:{line}"
    return replace(IMAGES, compute=replace(IMAGES.compute, threads_where=where))


def test_a_number_of_threads_that_the_script_sets_is_changed() -> None:
    source = "import torch\n\ntorch.set_num_threads(8)\n"
    changed = edit_room(source, {"compute_threads": 1}, sets_threads_at(3))
    assert changed == source.replace("8", "1")


def test_other_processes_keep_their_number_of_threads() -> None:
    source = dedented(
        """
        import numba
        import torch

        def one_thread(worker):
            torch.set_num_threads(1)

        numba.set_num_threads(8)
        train_loader = DataLoader(data, num_workers=2, worker_init_fn=one_thread)
        """
    )
    line = "import torch\n\ntorch.set_num_threads(4)\n"
    changed = edit_room(source, {"compute_threads": 4}, sets_threads_at(None))
    assert changed == source.replace("import torch\n", line, 1)
    own = source.replace("numba.set_num_threads(8)", "torch.set_num_threads(8)")
    at = own.splitlines().index("torch.set_num_threads(8)") + 1
    assert edit_room(own, {"compute_threads": 4}, sets_threads_at(at)) == own.replace("(8)", "(4)")


def test_a_name_that_the_script_has_already_is_not_taken() -> None:
    source = "train_loader = DataLoader(data, shuffle=True)\nahead = 1\nfor x in train_loader:\n    pass\n"
    assert edits.wrap_loop(source, None, "ahead") == source
    assert edits.wrap_loop(source, None, "sooner") != source


SAMPLES = {
    "dict": '{"x": torch.full((4,), float(i)), "y": i}',
    "tensor": "torch.full((4,), float(i))",
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_samples_of_any_kind_are_kept_in_memory(sample: str) -> None:
    source = textwrap.dedent(
        f"""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self): return 20
            def __getitem__(self, i): return {sample}
        train_loader = DataLoader(Data(), batch_size=5)
        batches = [str(batch) for batch in train_loader]
        """
    )
    changed = CacheSamples().edit(source, ALL["images"], {})
    assert "in_memory(Data())" in changed
    assert results(changed)["batches"] == results(source)["batches"]


@pytest.mark.parametrize(
    "how", ["batch_size=5, collate_fn=lambda batch: [s.pop() for s in batch]", "batch_size=None"]
)
def test_samples_that_the_script_may_change_are_not_kept(how: str) -> None:
    """As its next epoch would find them changed."""
    source = textwrap.dedent(
        f"""
        from torch.utils.data import DataLoader, Dataset
        class Data(Dataset):
            def __len__(self): return 20
            def __getitem__(self, i): return [i, i]
        train_loader = DataLoader(Data(), {how})
        """
    )
    assert CacheSamples().edit(source, ALL["images"], {}) == source


@pytest.mark.parametrize(
    "source",
    [
        'import PIL.Image\ndef load(path):\n    return PIL.Image.open(path).convert("RGB")\n',
        'def load(path):\n    from PIL import Image\n    return Image.open(path).convert("RGB")\n',
    ],
)
def test_images_are_opened_wherever_pillow_was_imported(source: str, tmp_path: Path) -> None:
    from PIL import Image

    from outpace.remedies.cache_decoded import CacheDecoded

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    load = results(CacheDecoded().edit(source, ALL["images"], MUCH))["load"]
    assert load(tmp_path / "a.png").size == (4, 4)  # type: ignore[operator]


PICTURES = 'from PIL import Image\ndef load(path):\n    return Image.open(path).convert("RGB")\n'


def test_an_image_that_is_kept_stays_as_it_was_decoded(tmp_path: Path) -> None:
    from PIL import Image

    from outpace.remedies.cache_decoded import CacheDecoded

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    load: Any = results(CacheDecoded().edit(PICTURES, ALL["images"], MUCH))["load"]
    load(tmp_path / "a.png").paste((255, 0, 0), (0, 0, 4, 4))
    assert load(tmp_path / "a.png").getpixel((0, 0)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("mode", "suffix"), [("RGB", "jpg"), ("L", "jpg"), ("CMYK", "jpg"), ("RGB", "png")]
)
def test_images_are_decoded_as_pillow_does(mode: str, suffix: str, tmp_path: Path) -> None:
    """Which way up they are is kept too, and a file may lie about what it is."""
    from PIL import Image

    from outpace.remedies.decode_jpeg import DecodeJpeg

    facts, exif = ALL["images"], Image.Exif()
    assert facts.input.images is not None
    images = replace(facts.input.images, jpeg_share=1.0)
    facts = replace(facts, input=replace(facts.input, images=images))
    exif[0x0112] = 6
    noise = np.random.default_rng(0).integers(0, 255, (9, 8, 4), np.uint8)
    made = Image.fromarray(noise, "CMYK").convert(mode)
    made.save(tmp_path / "a", {"jpg": "JPEG", "png": "PNG"}[suffix], exif=exif)
    before: Any = results(PICTURES)["load"]
    after: Any = results(DecodeJpeg().edit(PICTURES, facts, {}))["load"]
    one, other = before(tmp_path / "a"), after(tmp_path / "a")
    assert one.tobytes() == other.tobytes()
    assert one.getexif()[0x0112] == other.getexif()[0x0112] == 6


@pytest.mark.parametrize("name", ["cache_decoded", "decode_jpeg"])
def test_images_in_memory_are_opened_as_before(name: str, tmp_path: Path) -> None:
    from PIL import Image

    kind = next(k for k in all_remedies() if k.name == name)()
    load: Any = results(kind.edit(PICTURES, ALL["images"], MUCH))["load"]
    held = io.BytesIO()
    for color in ((255, 0, 0), (0, 0, 255)):
        held.seek(0)
        Image.new("RGB", (8, 8), color).save(held, "PNG")
        held.seek(0)
        assert load(held).getpixel((0, 0)) == color


def test_a_fork_draws_with_threads_of_its_own() -> None:
    """A pool whose threads were begun before a fork has none of them after it."""
    source = dedented(
        """
        class Rows:
            def __getitem__(self, index):
                return index
        class DataLoader:
            def __init__(self, data):
                self.data = data
            def __iter__(self):
                return iter(self.data.__getitems__([0, 1]))
        rows = Rows()
        train_loader = DataLoader(rows)
        found = []
        for row in train_loader:
            found.append(row)
        """
    )
    facts = anywhere(ALL["rows"])
    facts = replace(facts, input=replace(facts.input, drawn_by="Rows"))
    changed = FetchThreads().edit(source, facts, {"threads": 2})
    assert "in Ahead(train_loader)" in changed, "or the step would wait for them"
    rows: Any = results(changed)["rows"]
    assert rows.__getitems__([3, 1, 2]) == [3, 1, 2]
    child = os.fork()
    if not child:
        signal.alarm(20)  # which ends it, as it would wait for ever
        os._exit(rows.__getitems__([5, 4]) != [5, 4])
    assert os.waitpid(child, 0)[1] == 0


def test_another_loader_than_the_one_that_was_measured_is_left_alone() -> None:
    source = "probe = DataLoader(x, 256, shuffle=True)\nfor batch in probe:\n    pass\n"
    facts = replace(ALL["rows"], input=replace(ALL["rows"].input, where="data.py:3"))
    for name in ("persistent_workers", "slice_batches", "cache_samples", "prefetch"):
        assert patched(source, facts, [(name, {"batches": 2})], "train.py") == source
        assert patched(source, anywhere(facts), [(name, {"batches": 2})], "train.py") != source


@pytest.mark.parametrize(
    ("name", "asked"),
    [("slice_batches", "train.batch_size"), ("cache_samples", "train.dataset.classes")],
)
def test_what_the_script_asks_of_its_loader_stays(name: str, asked: str) -> None:
    source = "train = DataLoader(rows, batch_size=4, shuffle=True)\nprint(len(train.dataset))\n"
    facts, kind = anywhere(ALL["rows"]), next(k for k in all_remedies() if k.name == name)()
    assert kind.edit(source, facts, {}) != source
    source += f"print({asked})\n"
    assert kind.edit(source, facts, {}) == source


def test_torch_is_imported_for_the_layout_of_weights() -> None:
    source = dedented(
        """
        from torch import nn

        class Net(nn.Conv2d):
            pass

        model = Net(1, 1, 1)
        loss = model(x)
        """
    )
    facts = ALL["images"]
    facts = replace(facts, compute=replace(facts.compute, where="train.py:7"))
    changed = ChannelsLast().edit(source, facts, {})
    assert "\nimport torch\n" in f"\n{changed}"
    assert "model = model.to(memory_format=torch.channels_last)\n" in changed


@pytest.mark.parametrize("name", ["cache_samples", "fetch_threads", "slice_batches"])
def test_workers_are_given_up_with_what_they_made(name: str) -> None:
    source = dedented(
        """
        from torch.utils.data import DataLoader
        class Rows:
            def __getitem__(self, index):
                return index
        rows = Rows()
        train_loader = DataLoader(
            rows, batch_size=4, shuffle=True, num_workers=2, persistent_workers=True
        )
        for x in train_loader:
            print(x)
        """
    )
    facts = anywhere(ALL["rows"])
    facts = replace(facts, input=replace(facts.input, workers=2, drawn_by="Rows"))
    kind = next(k for k in all_remedies() if k.name == name)()
    changed = kind.edit(source, facts, kind.settings(facts))
    assert "num_workers=0" in changed
    assert "persistent_workers" not in changed
    of_others = source.replace("DataLoader(", "DataLoader(*more, ")
    assert kind.edit(of_others, facts, kind.settings(facts)) == of_others, "it is not sure"


def test_arguments_that_exclude_the_new_ones_are_left_out() -> None:
    facts = ALL["images"]
    optimizer = facts.compute.optimizer
    source = f"import torch\no = torch.optim.{optimizer}(p, lr=1e-3, foreach=True)\n"
    fused = FusedOptimizer().edit(source, facts, {"how": "fused"})
    assert "fused=True" in fused
    assert "foreach" not in fused
    source = (
        "train_loader = DataLoader(d, num_workers=1, timeout=30, multiprocessing_context='fork')\n"
    )
    none = LoaderWorkers().edit(source, facts, {"workers": 0})
    assert none == "train_loader = DataLoader(d, num_workers=0)\n"


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("rest", ["", "\nmain()"])
def test_a_diff_is_a_patch_whether_or_not_the_last_line_ends(
    rest: str, end: str, tmp_path: Path
) -> None:
    from outpace.remedies.set_to_none import SetToNone

    source = f"optimizer.zero_grad(set_to_none=False){rest}{end}"
    (tmp_path / "train.py").write_text(source)
    patch = SetToNone().diff(source, ALL["images"], {}, "train.py")
    subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "train.py").read_text() == source.replace("False", "True")


CHANGED = """
from torch.utils.data import DataLoader
train_set = Rows()
train_set.load()
{before}
loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=2)
for epoch in range(3):
    {inside}
    for batch in loader:
        step(batch)
"""


@pytest.mark.parametrize(
    ("before", "inside", "changes"),
    [
        ("pass", "pass", False),
        ("pass", "train_set.set_epoch(epoch)", True),
        ("pass", "train_set.hard = epoch > 1", True),
        ("pass", "loader.dataset.set_epoch(epoch)", True),
        ("pass", "loader.sampler.set_epoch(epoch)", False),
        ("pass", "print(train_set.names())", False),
        ("train_set.hard = True", "pass", False),
        ("def harder():\n    train_set.hard = True", "harder()", True),
    ],
)
def test_what_is_changed_between_epochs_is_not_kept_by_an_edit(
    before: str, inside: str, changes: bool
) -> None:
    """Workers that last, and samples in memory, would stay as they were before; a recipe sees the change."""
    source = CHANGED.format(before=before, inside=inside)
    data = msgspec.structs.replace(ALL["workers"].input, where=None)
    facts = msgspec.structs.replace(ALL["workers"], input=data)
    made = PersistentWorkers().edit(source, facts, PersistentWorkers().settings(facts))
    assert ("persistent_workers=True" in made) is not changes
    workers = LoaderWorkers().edit(source, facts, {"workers": 4})
    assert "num_workers=4" in workers
    assert ("persistent_workers=True" in workers) is not changes
    kept = CacheSamples().edit(source, facts, {})
    assert ("in_memory(train_set)" in kept) is not changes


CALLED_TWICE = dedented(
    """
    import torch
    class Net(torch.nn.Linear):
        pass
    model = Net(2, 1)
    def train(a, b):
        first = model(a)
        second = model(b)
        (first - second).square().mean().backward()
    """
)


def test_a_model_that_is_called_twice_to_learn_is_left_alone() -> None:
    line = CALLED_TWICE.splitlines().index("    first = model(a)") + 1
    assert edits.under_autocast(CALLED_TWICE, f"train.py:{line}", "cpu", "bfloat16") == CALLED_TWICE
    once = CALLED_TWICE.replace("    second = model(b)", "    second = b")
    assert "enabled" not in edits.under_autocast(once, f"train.py:{line}", "cpu", "bfloat16")
    assert edits.under_autocast(once, f"train.py:{line}", "cpu", "bfloat16") != once


def test_a_call_that_serves_validation_too_is_cast_in_training_alone() -> None:
    source = CALLED_TWICE.replace("    second = model(b)\n", "").replace(
        "    (first - second).square().mean().backward()", "    return (first - b).square().mean()"
    )
    line = source.splitlines().index("    first = model(a)") + 1
    changed = edits.under_autocast(source, f"train.py:{line}", "cpu", "bfloat16")
    assert "enabled=torch.is_grad_enabled()" in changed


def test_a_line_that_is_but_a_comment_is_put_in() -> None:
    text = 'torch.set_float32_matmul_precision("high")'
    source = f"import torch\n# {text}\n"
    once = edits.insert_after_imports(source, text)
    assert once != source
    assert edits.insert_after_imports(once, text) == once


def test_names_are_those_of_the_code() -> None:
    assert edits.names_any("torch.backends.cuda.matmul.allow_tf32 = False\n", ("allow_tf32",))
    assert not edits.names_any("# allow_tf32\nx = 1\n", ("allow_tf32",))


@pytest.mark.parametrize("change", [{"anew": True}, {"samples": 10**9}])
def test_samples_are_not_drawn_whole_where_that_does_not_pay(change: dict[str, Any]) -> None:
    source = "loader = DataLoader(data, 4)\nfor x in loader:\n    pass\n"
    facts = replace(IMAGES.input, where="train.py:1", samples=100, sample_bytes=8, workers=0)
    for more, same in (({}, False), (change, True)):
        evidence = replace(IMAGES, input=replace(facts, **more))
        changed = CacheSamples().edit(source, evidence, {"limit_mib": 100})
        assert (changed == source) is same
