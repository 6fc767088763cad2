from __future__ import annotations

import subprocess
import sys

import pytest

import outpace


def test_each_public_name_is_there() -> None:
    for name in outpace.__all__:
        assert callable(getattr(outpace, name)), name
    assert outpace.__all__ == sorted(outpace.__all__)


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = outpace.nothing


def test_importing_outpace_imports_no_torch() -> None:
    code = (
        "import sys, outpace; assert 'torch' not in sys.modules; assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_does_not_hide_the_function_of_its_name() -> None:
    code = (
        "import outpace, outpace.tune.prove, outpace.diagnose.learning\n"
        "for function in (outpace.tune, outpace.diagnose):\n"
        "    try:\n"
        "        function()\n"
        "    except TypeError as error:\n"
        "        assert 'target' in str(error), error\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
