"""Padding and all but empty operands are seen; what is usual is not."""

from __future__ import annotations

import pytest
import torch

from outpace.measure.waste import Paddings, Waste, padded, padded_vectors, zeros


def sequences(length: int, kept: int) -> torch.Tensor:
    indices = torch.zeros(32, length, dtype=torch.long)
    indices[:, :kept] = torch.randint(1, 1000, (32, kept))
    return indices


def test_padding_at_either_end() -> None:
    torch.manual_seed(0)
    assert padded(sequences(64, 16)) == pytest.approx((0.75, 0.75))
    assert padded(sequences(64, 16).flip(1)) == pytest.approx((0.75, 0.75))
    assert padded(torch.randint(0, 100, (32, 64)))[0] < 0.05
    assert padded(torch.zeros(32, dtype=torch.long)) == (0.0, 0.0)
    steps = torch.cat(
        [torch.randint(0, 8, (5, 32)), torch.full((40, 32), 8), torch.full((1, 32), 9)]
    )
    assert padded(steps) == (0.0, 0.0), "length x batch: blanks that a model is to bridge"


def test_sequences_of_several_lengths() -> None:
    torch.manual_seed(0)
    batch = torch.cat([sequences(40, kept) for kept in (10, 20, 40)])
    assert padded(batch) == (pytest.approx((0.75 + 0.5) / 3, abs=0.01), 0.0)
    wide = torch.cat([sequences(40, kept) for kept in (10, 20, 30)])
    assert padded(wide) == pytest.approx(((0.75 + 0.5 + 0.25) / 3, 0.25), abs=0.01)


def test_kinds_of_tokens_are_no_padding() -> None:
    """A table of two rows, always the first, beside the vocabulary's."""
    torch.manual_seed(0)
    words, kinds = torch.zeros(1000, 8), torch.zeros(2, 8)
    halves = torch.cat([torch.zeros(32, 16), torch.ones(32, 16)], 1).long()
    for order in (1, -1):
        waste = Waste()
        for table, indices in [(words, sequences(32, 24)), (kinds, halves)][::order]:
            waste.see("embedding", (table, indices), 0.0)
        assert waste.padding == pytest.approx(0.25)
    assert padded(torch.zeros(32, 16, dtype=torch.long)) == (0.0, 0.0)


def test_products_with_one_hot_rows() -> None:
    torch.manual_seed(0)
    rows = torch.nn.functional.one_hot(torch.randint(0, 500, (64,)), 500).float()
    waste = Waste()
    waste.see("mm", (rows, torch.randn(500, 8)), 1000.0)
    assert waste.flops == pytest.approx(998.0)
    assert not waste.several
    waste.see("mm", (torch.randn(64, 500).relu(), torch.randn(500, 8)), 1000.0)
    assert waste.flops == pytest.approx(998.0)


def test_rows_of_several_numbers_are_worth_a_sparse_tensor_where_they_are_few() -> None:
    """A bag of words, or a graph's neighbours: near the share of zeros where it begins to pay, little."""
    torch.manual_seed(0)
    for share, spared in ((0.04, 0.2), (0.01, 0.8), (0.001, 0.98)):
        rows = (torch.rand(2000, 1000) < share).float()
        waste = Waste()
        waste.see("mm", (rows, torch.randn(1000, 8)), 1000.0)
        assert waste.flops == pytest.approx(1000.0 * spared, abs=10.0)
        assert waste.several


def test_to_make_one_hot_rows_is_spared_too() -> None:
    rows = torch.nn.functional.one_hot(torch.randint(0, 500, (64,)), 500).float()
    waste = Waste()
    waste.see("_to_copy", (rows.long(),), 0.0, took_s=1.0, made=rows)
    waste.see("relu", (torch.randn(500, 8),), 0.0, took_s=4.0, made=torch.randn(500, 8))
    waste.see("mm", (rows, torch.randn(500, 8)), 1000.0)
    assert waste.making_s == 1.0


def test_masked_losses_and_pooled_gradients_are_no_waste() -> None:
    """Of a text whose last few words alone are learnt from, and of the largest of many pixels."""
    waste, gradients = Waste(), torch.zeros(512, 1000)
    gradients[-8:] = torch.randn(8, 1000)
    waste.see("mm", (gradients, torch.randn(1000, 64)), 1000.0)
    waste.see("mm", (gradients.t(), torch.randn(512, 64)), 1000.0)
    pooled = torch.zeros(8, 16, 32, 32)
    pooled[:, :, ::8, ::8] = 1.0
    waste.see("convolution_backward", (pooled, torch.randn(8, 3, 32, 32)), 1000.0, backward=True)
    waste.see("mm", (torch.zeros(512, 64), torch.randn(64, 64)), 1000.0)  # units that are all dead
    assert waste.flops == 0.0


def test_gradients_of_zero_are_no_one_hot_rows() -> None:
    """A loss that asks for the first position of each sequence; the rows' own come again transposed."""
    torch.manual_seed(0)
    rows = torch.nn.functional.one_hot(torch.randint(0, 500, (64,)), 500).float()
    gradient = torch.zeros(64, 128)
    gradient[0] = 1.0
    waste = Waste()
    waste.see("mm", (rows, torch.randn(500, 128)), 1000.0)
    waste.see("mm", (gradient, torch.randn(128, 64)), 1000.0, backward=True)
    assert waste.flops == pytest.approx(998.0)
    waste.see("mm", (rows.t(), torch.randn(64, 128)), 1000.0, backward=True)
    assert waste.flops == pytest.approx(1996.0)


def test_small_or_whole_numbers_are_not_looked_at() -> None:
    assert zeros(torch.zeros(8, 8)) == 0.0
    assert zeros(torch.zeros(100, 100, dtype=torch.long)) == 0.0
    assert zeros(torch.zeros(100, 100)) == 1.0


def looked_up(table: torch.Tensor, rows: int, *more: bool) -> tuple[object, ...]:
    """Arguments of an embedding that looks up the first rows of a table."""
    return (table, torch.arange(rows).repeat(2, 1), -1, False, *more)


def test_rows_that_are_not_looked_up() -> None:
    table = torch.zeros(100_000, 8, requires_grad=True)
    waste = Waste()
    waste.see("embedding", looked_up(table, 10_000, False), 0.0)
    waste.see("embedding", looked_up(table, 25_000, False), 0.0)
    assert waste.untouched_bytes() == pytest.approx(0.75 * table.nbytes)
    small = torch.zeros(1000, 8, requires_grad=True)
    waste.see("embedding", looked_up(small, 10, False), 0.0)
    assert waste.untouched_bytes() == pytest.approx(0.75 * table.nbytes)


def test_tables_whose_gradients_are_sparse_or_full_count_for_nothing() -> None:
    """Or that are not learnt; one that is an output layer too gets a gradient everywhere."""
    waste = Waste()
    waste.see("embedding", looked_up(torch.zeros(100_000, 8, requires_grad=True), 10, True), 0.0)
    waste.see("embedding", looked_up(torch.zeros(100_000, 8), 10, False), 0.0)
    tied = torch.zeros(100_000, 8, requires_grad=True)
    waste.see("embedding", looked_up(tied, 10, False), 0.0)
    waste.use("_to_copy", (tied,))  # as autocast, for a product
    with torch.no_grad():  # a teacher's
        waste.see("embedding", looked_up(torch.zeros(9**6, 8, requires_grad=True), 10), 0.0)
    states = torch.zeros(100_000, 8, requires_grad=True) + 1.0  # looked up, and no parameter
    waste.see("embedding", looked_up(states, 10), 0.0)
    assert waste.untouched_bytes() == 0.0


def test_tables_in_one_memory_are_told_apart() -> None:
    """As parameters that a sharded model keeps flat."""
    flat = torch.zeros(300_000, 8)
    waste = Waste()
    for rows in (flat[:100_000], flat[100_000:]):
        table = torch.nn.Parameter(rows)
        waste.use("embedding", looked_up(table, 10))
        waste.see("embedding", looked_up(table, 50_000), 0.0)
    assert waste.untouched_bytes() == pytest.approx((0.5 * 100_000 + 0.75 * 200_000) * 32)


def vectors(lengths: tuple[int, ...], length: int) -> torch.Tensor:
    batch = torch.zeros(len(lengths), length, 8)
    for row, own in enumerate(lengths):
        batch[row, :own] = torch.randn(own, 8)
    return batch


def test_sequences_of_vectors() -> None:
    """As of sound: zeros behind the end, up to the longest of the whole corpus."""
    torch.manual_seed(0)
    batch = vectors((10, 20, 30, 20), 60)
    for given in (batch, batch.flip(1)):
        assert padded_vectors(given) == pytest.approx((1 - 80 / 240, 0.5))
    assert padded_vectors(vectors((60, 30, 20), 60)) == pytest.approx((1 - 110 / 180, 0.0))
    assert padded_vectors(torch.randn(4, 60, 8)) == (0.0, 0.0)
    assert padded_vectors(torch.randn(4, 60, 8).relu()) == (0.0, 0.0)


def test_a_part_that_is_empty_in_all_sequences_alike_is_to_be_filled() -> None:
    assert padded_vectors(vectors((40, 40, 40), 60)) == (0.0, 0.0)


def test_vectors_that_are_packed_are_not_computed_with() -> None:
    torch.manual_seed(0)
    batch = vectors((100, 200, 300, 200), 600)
    weight = torch.randn(16, 8, 3)
    waste = Waste()
    waste.see("view", (batch, [-1, 8]), 0.0)
    assert waste.trimmed == 0.0, "nothing is computed with it yet"
    waste.see("mm", (batch.view(-1, 8), torch.randn(8, 4)), 1000.0)
    assert waste.trimmed == pytest.approx(0.5)
    waste.see("_pack_padded_sequence", (batch,), 0.0)
    assert (waste.padding, waste.trimmed) == (0.0, 0.0)
    other = Waste()
    other.see("convolution", (batch.transpose(1, 2), weight), 1000.0)
    assert other.padding == pytest.approx(1 - 800 / 2400)
    learnt = Waste()
    learnt.see("convolution", (batch.transpose(1, 2).clone().requires_grad_(), weight), 1000.0)
    assert learnt.padding == 0.0, "of an activation zeros say nothing"


def test_tokens_that_are_packed_are_not_computed_with() -> None:
    torch.manual_seed(0)
    table, tokens = torch.zeros(1000, 8), sequences(64, 32)
    waste = Waste()
    waste.see("embedding", (table, tokens), 0.0)
    assert waste.trimmed == pytest.approx(0.5)
    for _ in range(2):
        waste.see("_pack_padded_sequence", (table[tokens],), 0.0)
        assert (waste.padding, waste.trimmed) == (0.0, 0.0)
        waste.see("embedding", (table, tokens), 0.0)
        assert (waste.padding, waste.trimmed) == (0.0, 0.0)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_a_sparse_operand_is_no_waste() -> None:
    """As of a graph's neighbours; torch does not count the zeros of one."""
    neighbours = torch.eye(100)
    waste = Waste()
    for stored in (neighbours.to_sparse(), neighbours.to_sparse_csr()):
        waste.see("mm", (stored, torch.randn(100, 8)), 1000.0)
    assert waste.flops == 0.0


def test_an_index_that_is_met_elsewhere_too_is_no_padding() -> None:
    """A column of a table that nearly always has one value; blank pixels as tokens."""
    torch.manual_seed(0)
    fields = torch.randint(0, 10, (256, 8)) + 10 * torch.arange(8)
    fields[: 9 * 256 // 10, -1] = 70
    assert padded(fields) == (0.0, 0.0)
    pixels = torch.zeros(32, 28, 28, dtype=torch.long)
    pixels[:, 4:24, 6:22] = torch.randint(1, 256, (32, 20, 16))
    assert padded(pixels.flatten(1)) == (0.0, 0.0)


def test_zeros_that_are_data_are_no_padding() -> None:
    """Rows of digits, blank at their top too; a piano's keys; nights within and at the end of days."""
    torch.manual_seed(0)
    digits = torch.zeros(16, 28, 28)
    for row, digit in enumerate(digits):
        digit[4 : 20 + row % 4, 6:22] = torch.rand(16 + row % 4, 16)
    assert padded_vectors(digits) == (0.0, 0.0)
    keys = (torch.rand(8, 40, 88) < 0.05).float()
    keys[::2, 30:] = 0
    assert padded_vectors(keys) == (0.0, 0.0)
    days = torch.rand(4, 48, 3)
    days[:, 10:16] = 0
    for row in range(4):
        days[row, 40 + row :] = 0
    assert padded_vectors(days) == (0.0, 0.0)


def test_what_has_no_positions_has_none_that_are_padding() -> None:
    """A picture's products beside those of its caption."""
    waste, table = Waste(), torch.randn(5000, 64)
    captions = torch.randint(1, 5000, (16, 77))
    captions[:, 20:] = 0
    waste.see("mm", (torch.randn(16, 3000), torch.randn(3000, 64)), 100.0)
    waste.see("embedding", (table, captions), 0.0)
    waste.see("mm", (torch.randn(16 * 77, 64), torch.randn(64, 64)), 10.0)
    waste.see("bmm", (torch.randn(64, 77, 16), torch.randn(64, 16, 77)), 5.0)
    waste.see("mm", (torch.randn(16, 3000), torch.randn(3000, 64)), 100.0, backward=True)
    waste.see("mm", (torch.randn(64, 16 * 77), torch.randn(16 * 77, 64)), 10.0, backward=True)
    assert waste.padding == pytest.approx(57 / 77)
    assert waste.sequence_flops == 25.0


def test_padding_of_several_batches_is_that_of_their_mean() -> None:
    """One in two has a long sequence in it, to which all of it has to be padded."""
    paddings, table = Paddings(), torch.randn(5000, 8)
    for longest in (40, 160, 40, 160):
        tokens = torch.randint(1, 5000, (16, 160))
        tokens[:, 40:] = 0
        tokens[0, :longest] = 7
        tokens[0, longest:] = 0
        paddings.see(torch.randn(160, 8), torch.arange(160).repeat(16, 1))
        paddings.see(table, tokens)
    padding, trimmed = paddings.mean() or (0.0, 0.0)
    assert trimmed == pytest.approx(0.5 * 120 / 160)
    assert padding == pytest.approx(0.5 * (0.75 + 0.75 * 15 / 16))
    assert Paddings().mean() is None
