"""What a line of the script does, by its words."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from outpace.measure.lines import fetch_kind, is_logging
from outpace.measure.sampler import Line

LOGS = (
    "print(torch.log(x))",
    "logger.info('x')",
    "self.log('loss', loss)",
    "wandb.log({'a': 1})",
    "self.log_dict(found)",
    "log_params(model)",
    "logs.append(loss.item())",
    "log.log(10, 'x')",
    "writer.add_scalar('loss', loss)",
    "bar.update(1)",
)
COMPUTES = (
    "loss = -(y * torch.log(p + 1e-7)).mean()",
    "out = logits.view(-1, 10)",
    "loss = F.nll_loss(F.log_softmax(x, 1), y)",
    "ratio = dist.log_prob(a).exp()",
    "row = torch.logsumexp(similar, 0)",
    "kl = logvar.exp() - log_var.sum()",
    "out = x.log() + x.log1p() + math.log(2)",
    "chosen = log_probs.gather(1, a)",
    "scale = log_std.clamp(-5, 2)",
)


@pytest.mark.parametrize(
    ("text", "logs"), [(t, True) for t in LOGS] + [(t, False) for t in COMPUTES]
)
def test_a_logarithm_is_no_log(text: str, logs: bool, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(text + "\n")
    linecache.checkcache(str(script))
    line = Line("elsewhere", str(script), "main", ((str(script), "main", 1),))
    assert is_logging(line) == logs


def test_torchs_own_way_from_a_data_set_to_a_batch_is_putting_it_together() -> None:
    """As of a TensorDataset, in which the script has no code of its own."""
    loop = (("train.py", "main", 9),)
    library = "/lib/python3.11/site-packages/torch/utils/data/"
    for file in ("dataset.py", "_utils/fetch.py", "sampler.py"):
        assert fetch_kind(Line("input", library + file, "__getitem__", loop)) == "collate"
    own = (("train.py", "__getitem__", 3), *loop)
    assert fetch_kind(Line("input", "train.py", "__getitem__", own)) == "augment"
