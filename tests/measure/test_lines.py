"""What a sampled line was doing, by the words that are in it and the file it was in."""

from __future__ import annotations

import linecache
import os
from collections import Counter
from pathlib import Path

import pytest

from outpace.measure.lines import (
    at_work,
    fetch_kind,
    input_lines,
    is_logging,
    is_loss,
    is_optimizers,
    is_telling,
    kinds,
    places,
)
from outpace.measure.sampler import Line

FILE = "/home/someone/train.py"


def line_of(text: str, file: str = FILE) -> Line:
    """A sample at a line that reads so, the innermost function being in ``file``."""
    linecache.cache[FILE] = (len(text), None, [text + "\n"], FILE)
    return Line("elsewhere", file, "f", ((FILE, "train", 1),))


@pytest.mark.parametrize(
    "text",
    [
        "print(loss)",
        'log("epoch", epoch)',
        "log.write(row)",
        "logger.info(loss.item())",
        "logging.warning(text)",
        "self.log_metrics(step, loss)",
        "wandb.log({'loss': loss})",
        "self.log('loss', loss)",
        "writer.add_scalar('loss', loss, step)",
        "writer.add_histogram(name, values, step)",
        "pbar.update(1)",
        "bar.set_postfix(loss=loss)",
        "fig.savefig(path)",
        "grid(fake).save(f'samples/{step}.png')",
        "rows.writerow([step, loss])",
        "print(torch.log(x))",
        "self.log_dict(found)",
        "log_params(model)",
        "log.log(10, 'x')",
    ],
)
def test_logging(text: str) -> None:
    assert is_logging(line_of(text))


@pytest.mark.parametrize(
    "text",
    [
        "loss = F.cross_entropy(logits.view(-1, size), labels.view(-1))",
        "logits = logits.reshape(-1, size)",
        "loss = -policy.log_prob(actions).mean()",
        "kl = (logvar.exp() - logvar - 1).mean()",
        "loss = -torch.log(p).mean()",
        "entropy = -(p * p.log()).sum()",
        "loss = -math.log(p) + np.log(q)",
        "loss = nll(F.log_softmax(out, 1), labels) + torch.logsumexp(out, 1).mean()",
        "out = x.log() + x.log1p() + math.log(2)",
        "chosen = log_probs.gather(1, a)",
        "scale = log_std.clamp(-5, 2)",
        "ema.update(model)",
        "metrics.update(out, labels)",
        "known.update(new)",
    ],
)
def test_logarithms_and_what_is_kept_up_to_date_are_no_logging(text: str) -> None:
    assert not is_logging(line_of(text))


def test_a_validation_whose_line_prints_what_it_gives_is_none() -> None:
    text = "print(model(x).argmax(1))"
    assert is_telling(line_of(text))
    assert not is_telling(line_of(text, "/site-packages/torch/nn/modules/linear.py"))
    assert is_telling(line_of("draw(matrix)", "/site-packages/matplotlib/axes/_base.py"))


def test_figures_are_logging_wherever_they_are_drawn() -> None:
    assert is_logging(line_of("draw(matrix)", "/site-packages/matplotlib/axes/_base.py"))


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("/site-packages/torch/nn/utils/clip_grad.py", True),
        ("/site-packages/torch/optim/lr_scheduler.py", True),
        ("/site-packages/torch/nn/functional.py", False),
        (FILE, False),
    ],
)
def test_what_goes_with_a_step_of_the_optimizer(file: str, told: bool) -> None:
    assert is_optimizers(line_of("around(model)", file)) == told
    assert is_optimizers(line_of("optimizer.step()", file)) == ("/torch/" in file)


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (FILE, True),
        ("/site-packages/torch/nn/functional.py", True),
        ("/site-packages/sklearn/metrics/_ranking.py", False),
    ],
)
def test_a_loss_is_computed_by_torch(file: str, told: bool) -> None:
    """A metric of another package may be in the same line."""
    line = line_of("loss, score = criterion(out, y), metric(out, y)", file)
    assert is_loss(line, {(FILE, "train", 1)}) == told
    assert not is_loss(line, {(FILE, "train", 2)})


@pytest.mark.parametrize(
    ("text", "file", "kind"),
    [
        ("rows = self.db.execute(", FILE, "storage"),
        ("group = self.file.read_row_group(index)", FILE, "parse"),
        ("row = group.to_pylist()[0]", FILE, "parse"),
        ("values = [float(value) for value in row]", FILE, "parse"),
        ("label = int(row[3].strip())", FILE, "parse"),
        ("words = line.split()", FILE, "parse"),
        ("text = BLANKS.sub(' ', text)", FILE, "parse"),
        ("return (yy < 9).float()[None] * 2 - 1", FILE, "augment"),
        ("x = np.roll(x, int(torch.randint(-2, 3, ())), axis=0)", FILE, "augment"),
        ("x = x.sub(self.mean).div(self.std)", FILE, "augment"),
        ("features = features.sub(mean)", FILE, "augment"),
        ("latent = self.vae.encode(image)", FILE, "augment"),
        ("value = float(row[2].replace(',', '.'))", FILE, "parse"),
        ("ids = enc.encode(text)", FILE, "parse"),
        ("return torch.from_numpy(x), int(self.y[i])", FILE, "augment"),
        ("left, right = x.split(8)", FILE, "augment"),
        ("window = self.tokens[start : start + 64]", FILE, "augment"),
        ("x = torch.sparse_coo_tensor(where, values).to_dense()", FILE, "augment"),
        ("x = self.signal[i]", "/site-packages/h5py/_hl/dataset.py", "storage"),
        ("x = self.array[i]", "/site-packages/zarr/core/sync.py", "storage"),
        ("wave = read(path)", "/site-packages/soundfile.py", "decode"),
        ("with zipfile.ZipFile(path) as z:", "/usr/lib/python3/zipfile.py", "parse"),
        ("with zipfile.ZipFile(path) as z:", "/usr/lib/python3/encodings/cp437.py", "parse"),
        ("for line in file:", "/usr/lib/python3/gzip.py", "parse"),
        ("image = image.convert('RGB')", "/site-packages/PIL/ImageFile.py", "decode"),
        ("image = image.convert('RGB')", "/site-packages/PIL/JpegImagePlugin.py", "decode"),
        ("image = image.resize((72, 72))", "/site-packages/PIL/Image.py", "augment"),
    ],
)
def test_kinds_of_input(text: str, file: str, kind: str) -> None:
    assert fetch_kind(line_of(text, file)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("return [torch.stack(field).float() for field in rows]", "collate"),
        ("x = np.concatenate(parts)", "collate"),
        ("x = torch.tensor(rows)", "collate"),
        ("x = x.flip(1)", "augment"),
    ],
)
def test_batches_that_no_loader_puts_together(text: str, kind: str) -> None:
    assert fetch_kind(line_of(text), None) == kind
    assert fetch_kind(line_of(text)) == "augment", "a data set's own work on a sample"


def test_statements_that_make_the_input_of_several_models(tmp_path: Path) -> None:
    """What one model gives another is no input, whatever the models are called."""
    script = tmp_path / "td3.py"
    script.write_text(
        "def update(memory):\n"
        "    obs, act = memory.sample(64)\n"
        "    hidden = encoder(obs)\n"
        "    value = critic(hidden, act)\n"
    )
    os.utime(script, (0, 0))  # it is not taken for one that was edited meanwhile
    at = str(script)
    callers = [(at, "update", 3, ("obs",)), (at, "update", 4, ("hidden", "act"))]
    assert input_lines(callers) == {(at, "update", 2)}


def test_workers_at_rest_have_no_place() -> None:
    """A forked one waits beneath the line of the script that started it."""
    works, rests = line_of("x = load(path)"), line_of("", "/usr/lib/python3/selectors.py")
    rests = rests._replace(lines=((FILE, "main", 9),))
    assert places(at_work(Counter({works: 1, rests: 99}))) == [(f"{FILE}:1", 1.0)]


def test_torchs_own_way_from_a_data_set_to_a_batch_is_putting_it_together() -> None:
    """As of a TensorDataset, in which the script has no code of its own."""
    loop = (("train.py", "main", 9),)
    library = "/lib/python3.11/site-packages/torch/utils/data/"
    for file in ("dataset.py", "_utils/fetch.py", "sampler.py"):
        assert fetch_kind(Line("input", library + file, "__getitem__", loop)) == "collate"
    own = (("train.py", "__getitem__", 3), *loop)
    assert fetch_kind(Line("input", "train.py", "__getitem__", own)) == "augment"


def test_what_runs_in_c_beneath_a_frame_of_ours_is_not_waited_for() -> None:
    """cv2 and a tensor's methods have no Python of their own."""
    from outpace.seams import decode, fetch, transfer

    own = (("train.py", "__getitem__", 7),)
    kinds = {
        module.__name__.rpartition(".")[2]: fetch_kind(
            Line("input", str(module.__file__), "method", own)
        )
        for module in (decode, transfer, fetch)
    }
    assert kinds == {"decode": "decode", "transfer": "augment", "fetch": "wait"}


def test_freeing_what_a_sample_was_made_from_is_of_the_kind_that_made_it() -> None:
    """A method's objects are freed as it ends, in the line that called it."""
    loop = (("train.py", "main", 9),)
    fetches = "/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py"
    ends = Line("input", fetches, "<listcomp>", loop)
    parses = line_of("record = json.loads(line)")
    collates = Line("input", fetches.replace("fetch", "collate"), "default_collate", loop)
    made = kinds(Counter({parses: 60, ends: 30, collates: 10}))
    assert made == pytest.approx({"parse": 0.9, "collate": 0.1})
    assert kinds(Counter({ends: 30, collates: 10})) == {"collate": 1.0}
