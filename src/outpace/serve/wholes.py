"""Calls that make something of a whole sample, which is something of a whole batch where it is a slice.

Along an axis that is counted from the last one, a batch is treated sample by sample; its first axis is no
sample's. An axis that is not written there as a number is in doubt.
"""

from __future__ import annotations

import ast

from outpace.measure.syntax import name_of

BY_AXIS = {
    *("all", "any", "max", "min", "amax", "amin", "nanmax", "nanmin", "ptp"),
    *("argmax", "argmin", "nanargmax", "nanargmin", "sort", "argsort", "count_nonzero"),
    *("sum", "nansum", "prod", "nanprod", "mean", "nanmean", "average"),
    *("median", "nanmedian", "mode"),
    *("std", "nanstd", "var", "nanvar", "std_mean", "var_mean"),
    *("cumsum", "cumprod", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod"),
    *("cummax", "cummin", "reduce", "accumulate"),
    *("softmax", "log_softmax", "softmin", "logsumexp", "logcumsumexp"),
}
"""which may be told an axis at once, after what they are given"""
OTHERS = {
    *("allclose", "equal", "array_equal", "array_equiv", "norm", "vector_norm", "matrix_norm"),
    *("dist", "vdot", "trace", "cov", "corrcoef", "zscore", "fsum", "trapezoid", "aminmax"),
    *("quantile", "nanquantile", "percentile", "nanpercentile", "topk", "kthvalue"),
    *("partition", "argpartition", "msort", "sorted", "nonzero", "flatnonzero", "argwhere"),
    *("histogram", "histogramdd", "histc", "bincount", "unique", "unique_consecutive"),
    *("apply_along_axis", "apply_over_axes", "flatten", "ravel", "reshape", "view"),
}
"""which are told one by its name, if at all"""
AXES = ("axis", "axes", "dim", "dims", "start_dim")
LIBRARIES = ("np", "numpy", "torch", "F", "nn")
"""modules whose functions are given the data first: ``np.sum(x, -1)``, but ``x.sum(-1)``"""


def of_all(call: ast.Call) -> bool:
    """Whether a call makes something of all that it is given."""
    name = name_of(call.func)
    if name not in BY_AXIS and name not in OTHERS:
        return False
    told = [each.value for each in call.keywords if each.arg in AXES]
    if not told and name in BY_AXIS and isinstance(call.func, ast.Attribute):
        place = int(_root(call.func) in LIBRARIES)
        told = call.args[place : place + 1]
    return not told or not all(map(_from_the_last, told))


def _root(tree: ast.expr) -> str:
    while isinstance(tree, ast.Attribute):
        tree = tree.value
    return tree.id if isinstance(tree, ast.Name) else ""


def _from_the_last(axis: ast.expr) -> bool:
    match axis:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return True
        case ast.Tuple(elts=[_, *_] as parts) | ast.List(elts=[_, *_] as parts):
            return all(map(_from_the_last, parts))
    return False
