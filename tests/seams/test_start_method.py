from __future__ import annotations

import subprocess
import sys


def test_to_ask_how_processes_start_chooses_nothing_and_imports_no_torch() -> None:
    code = (
        "import multiprocessing as m, sys; from outpace.seams.start_method import forks, start_method;"
        "default = m.get_all_start_methods()[0];"
        "assert (start_method(), forks()) == (default, default == 'fork');"
        "m.set_start_method('spawn');"
        "assert (start_method(), forks()) == ('spawn', False);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
