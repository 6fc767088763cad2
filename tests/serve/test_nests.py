from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from outpace.serve.nests import each, leaves


class Point(NamedTuple):
    x: Any
    y: Any


class Named(list[Any]):
    """A list that knows more than its parts."""

    name = "none"


def plus_one(leaf: Any) -> Any:
    return leaf + 1


def test_containers_stay_of_their_classes() -> None:
    named = Named([1, 2])
    named.name = "some"
    counts: defaultdict[str, int] = defaultdict(int, a=1)
    changed = each((OrderedDict(a=1), counts, Point(1, [2]), named), plus_one)
    assert changed == (OrderedDict(a=2), {"a": 2}, Point(2, [3]), [2, 3])
    assert [type(one) for one in changed] == [OrderedDict, defaultdict, Point, Named]
    assert changed[1]["b"] == 0
    assert changed[3].name == "some"
    assert named == [1, 2]


def test_walking_constructs_nothing() -> None:
    packed = pack_sequence([torch.arange(3), torch.arange(2)])
    found = leaves({"of": packed, "shape": torch.ones(2, 3).shape})
    assert found[-2:] == [2, 3]
    assert torch.equal(found[0], packed.data)


def test_packed_sequences_are_changed_as_a_whole() -> None:
    packed = pack_sequence([torch.arange(3), torch.arange(2)])
    seen: list[Any] = []
    each([packed], seen.append)
    assert len(seen) == 1
    assert isinstance(seen[0], PackedSequence)


def test_what_a_tokenizer_gives_has_parts() -> None:
    class Encoding(UserDict[str, Any]):
        """Knows more than its parts."""

        kind = "none"

    tokens = Encoding(x=1, more={"y": 2})
    tokens.kind = "some"
    changed = each([tokens], plus_one)[0]
    assert (type(changed), changed.kind) == (Encoding, "some")
    assert changed.data == {"x": 2, "more": {"y": 3}}
    assert tokens.data == {"x": 1, "more": {"y": 2}}
    assert leaves(tokens) == leaves(MappingProxyType(dict(tokens))) == [1, 2]
    assert each(tokens, lambda leaf: leaf is tokens, exact=True)
