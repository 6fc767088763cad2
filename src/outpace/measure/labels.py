"""What a loss is told to be right: how often each class comes, and whether a batch is of one class.

What a model has chosen itself in this step, or a script made up, tells nothing of the data.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch

from outpace.measure.dispatch import tensors_in
from outpace.measure.marks import Marks
from outpace.measure.some_numbers import some_numbers
from outpace.seams.host import Host

EACH, IGNORED = 0, -100
"""the reduction of a loss that is each sample's: the script weighs them itself, or may; and no label"""
WORDS = 20
"""classes, from which on a table of as many rows holds what is told: what comes next of it is as rare as
it is"""
CHOICES = ("argmax", "max", "topk", "sort", "multinomial")
"""operators that a script has a model choose its own labels by"""
MADE_UP = ("zeros", "ones", "full", "arange", "zeros_like", "ones_like", "full_like")
"""and of which it makes labels that tell nothing of the data, as where samples are told from each other"""
COPIES = ("_to_copy", "clone")
FEWEST = 8
"""in a batch, to see whether it is of one class"""


class Given(NamedTuple):
    """The labels of a loss, after so many steps and backward passes."""

    steps: int
    passes: int
    held: torch.Tensor
    """so that others come to lie elsewhere in memory"""
    counts: Counter[int]


class Labels:
    """Those of the steps that were looked at."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.given: list[Given] = []
        self.guesses = Marks[str]()
        """on what a model chose in this step, or was made up: as a label it is no data's"""
        self.classes = 0
        self.tables: set[int] = set()
        """rows of those that were looked up in"""
        self.by_script = False
        """the loss weights classes, or the script may: it is each sample's"""

    def see_made(self, name: str, args: tuple[Any, ...], out: Any) -> None:
        """An operator that may make labels."""
        chosen = name in CHOICES and not is_binary(args[0])
        if chosen or name in MADE_UP or (name in COPIES and self._is_guess(args[0])):
            # Also as other numbers, but no more of them than are labels of a batch.
            few = [t for t in tensors_in(out) if not t.is_floating_point() or self._is_of_batch(t)]
            self.guesses.put(few, "guess")

    def see(self, name: str, args: tuple[Any, ...]) -> None:
        """An operator of the forward pass, a loss or a table among others."""
        if name == "embedding":
            self.tables.add(int(args[0].shape[0]))
        elif name == "nll_loss_forward" and self._is_of_batch(args[1]):
            # One label a sample: words of a text are as rare as they are.
            weighted = args[2] is not None or int(args[3]) == EACH
            self._note(args[1], int(args[0].shape[1]), int(args[4]), weighted=weighted)
        elif name.startswith("binary_cross_entropy") and args[1].numel() == self.host.batch_size:
            self.classes = max(self.classes, 2)
            if self.classes == 2 and is_binary(args[1]):  # others are shares, or said to be smooth
                # Weights of samples and of answers, and the reduction; what is as ever may be left out.
                weighted = any(isinstance(each, torch.Tensor) or each == EACH for each in args[2:])
                self._note(args[1], 2, IGNORED, weighted=weighted)

    def _note(self, labels: torch.Tensor, classes: int, ignored: int, *, weighted: bool) -> None:
        """Of several heads those of the one with the most classes; labels that are ``ignored`` are none."""
        if self._is_guess(labels):
            return
        if classes > self.classes:
            self.given.clear()
        self.classes = max(self.classes, classes)
        counts = Counter(labels.flatten().long().tolist())
        counts.pop(ignored, None)
        if classes == self.classes and counts:
            at = self.host.steps, self.host.backwards
            self.given.append(Given(*at, labels.detach(), counts))
            self.by_script = weighted

    def _is_of_batch(self, tensor: torch.Tensor) -> bool:
        """Whether there is one number a sample."""
        return tensor.shape == (self.host.batch_size,)

    def _is_guess(self, tensor: torch.Tensor) -> bool:
        return bool(self.guesses.of(tensor))

    @property
    def weighted(self) -> bool:
        """Whether rare classes may count for more already, or are meant to be as rare as they are."""
        return self.by_script or (self.classes >= WORDS and self.classes in self.tables)

    def counts(self) -> list[Counter[int]]:
        """Of the labels; not of those that are one class, and the same ones in several steps: these were
        made up beforehand. And not where one backward pass learns from several others each: these are a
        text's characters, one after another, as rare as they are.
        """
        passes: dict[tuple[int, int], list[Counter[int]]] = {}
        for each in self.given:
            passes.setdefault((each.steps, each.passes), []).append(each.counts)
        alike = {at for at, counts in passes.items() if all(one == counts[0] for one in counts)}
        places = [(each.held.data_ptr(), *each.counts) for each in self.given]
        steps = {(each.steps, place) for each, place in zip(self.given, places, strict=True)}
        again = Counter(place for _, place in steps)
        return [
            each.counts
            for each, place in zip(self.given, places, strict=True)
            if (each.steps, each.passes) in alike and (len(each.counts) > 1 or again[place] == 1)
        ]


def purity(counts: list[Counter[int]]) -> float | None:
    """The share of a batch's most frequent class, on average; None where batches are too small."""
    several = [each for each in counts if each.total() >= FEWEST]
    return sum(max(n.values()) / n.total() for n in several) / len(several) if several else None


def is_binary(given: torch.Tensor) -> bool:
    """Whether there is nothing in it but 0 and 1: a data set's one-hot label, not a model's output."""
    some = some_numbers(given)
    return bool(((some == 0) | (some == 1)).all())
