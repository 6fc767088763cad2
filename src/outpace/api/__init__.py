"""The pipeline: measure, diagnose, try, prove, apply; a file for each thing that it is asked for."""

from outpace.api.diagnosing import diagnose
from outpace.api.running import run
from outpace.api.sizing import sizes
from outpace.api.tuning import tune

__all__ = ["diagnose", "run", "sizes", "tune"]
