"""TF32 by the old switch and by the new one: set, and given back so that the script can read its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.conftest import plainly

from outpace.seams.tf32 import computed_in, in_tf32, precision, set_precision

BY_THE_NEW = """
    import torch
    from outpace.seams.tf32 import computed_in, in_tf32, precision, set_precision
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    own = precision()
    set_precision(in_tf32(own))
    print(torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision,
          computed_in("cuda"))
    set_precision(own)
    print(torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert precision().new
    print(computed_in("cuda"))
    """


@pytest.mark.parametrize("own", ["highest", "high", "medium"])
def test_the_old_switch_is_given_back(own: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(own)
    try:
        kept = precision()
        set_precision(in_tf32(kept))
        assert computed_in("cuda") == "tf32"
        set_precision(kept)
        assert torch.get_float32_matmul_precision() == own
        assert computed_in("cpu") == "float32"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch 2.9 has the new switch"
)
def test_the_new_switch_is_used_where_the_script_uses_it(script: Callable[..., Path]) -> None:
    done = plainly(script(BY_THE_NEW))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["tf32 tf32 tf32", "ieee ieee", ""]
