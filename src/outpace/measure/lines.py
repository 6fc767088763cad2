"""What a sampled line was doing: which lines make the model's input, and the kind of work in them.

Kinds of input work are told by where the innermost code lives, by the frames above it and, for C
functions that show as the line that calls them, by the words of that line. It is a prior for
splitting time that was measured; what a finding gains is measured by an arm.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Container
from typing import Any

from outpace.measure.by_hand import Place, Update
from outpace.measure.loops import loops_at
from outpace.measure.sampler import Line, place_of
from outpace.measure.syntax import parse
from outpace.seams.phases import WORK
from outpace.seams.root import Caller
from outpace.seams.where import is_user_file

PARSE_FILES = re.compile(
    r"/(json|csv|re|pickle|xml|html|tokenize|email|struct|codecs|zipfile|tarfile|gzip|bz2|lzma)(/|\.py)"
    r"|orjson|pandas/io|sre_|"
    r"tokenizers?/|nltk|simdjson|pyarrow|dateutil|_strptime"
)
PARSE_WORDS = re.compile(
    r"json|csv|\.split\((?!\s*\d|[^)]*\bdim\b)|(?<!s)parse|\bre\.|findall|finditer|strptime|struct\."
    r"|(?<![\w.])(?:float|int)\(\w+(?:\[[^\]]*\])*(?:\.(?:strip|replace)\([^()]*\))*\)|\bmap\((?:float|int)\b"
    r"|(?<![\w.])(?:[A-Z][A-Z_]+|re|\w*_re|\w*pattern)\.sub\(|\.sub\(\s*[rbf]*[\"']|unpack|pickle|loads?\(|decode"
    r"|read_(?:csv|table|row|parquet|json|excel|feather|hdf|sql)|to_py(?:list|dict)|to_pandas"
    r"|[zZ]ip[fF]ile|tarfile|gzip|fromstring|fromiter|tokeni[sz]|\b(?:tok\w*|enc|bpe)\.encode\(|\.iloc|\.loc\["
)
"""a number made of a text, ``float(value)``, and none of a tensor, as ``x.float()``"""
STORAGE_WORDS = re.compile(
    r"\bopen\(|\.read\(|\.readline|\.seek\(|sleep\(|urlopen|requests\.|\.recv|\.get\(url|os\.stat|"
    r"np\.load\(|memmap|pread|h5py|read_bytes|read_text|lmdb|\.fetch|\.execute\("
)
STORAGE_FILES = re.compile(
    r"/(socket|ssl|http/client|urllib|pathlib)(/|\.py)|requests/|urllib3|fsspec|s3fs"
    r"|/(h5py|zarr|numcodecs|netCDF4|xarray|tables|tiledb|lmdb)/"
)
STACK_WORDS = re.compile(
    r"\b(?:torch|np|numpy)\.(?:stack|[vh]stack|cat|concat|concatenate|tensor|as_tensor)\(|pad_sequence\("
)
"""of lines that put a batch together without a DataLoader, sample by sample"""
LOG_FILES = re.compile(r"/(logging|tqdm|tensorboard|wandb|mlflow|rich|matplotlib)(/|\.py)|loguru")
LOG_WORDS = re.compile(
    r"\bprint\(|\.write(?:row|rows|lines)?\(|progress|wandb|savefig|imsave|save_image|set_postfix|bar\.update\("
    r"|\.add_(?:scalars?|histogram|images?|figure|text)\(|\.(?:debug|info|warning|error|critical)\("
    r"|\.save\(.*\.(?:png|jpe?g|gif|svg|pdf)"
    r"|(?<!torch)(?<!math)(?<!\bnp)(?<!numpy)\.log\((?!\))|\blog\(f?[\"'{]"
    r"|\blog_(?:\w+_)?(?:metrics?|scalars?|dict|params?|stats?|steps?|epoch|batch|message|msg|line|losses|progress"
    r"|values|results?|images?|histograms?|figures?|gradients|weights)\("
)
"""a logarithm is none: ``log_prob(x)``, ``logits.view(...)``, ``x.log()``"""
METRIC_FILES = re.compile(r"/(sklearn|scipy|numpy|pandas)/")
"""what gradients do not go through"""
OPTIMIZER_FILES = re.compile(r"/torch/(optim/|nn/utils/clip_grad\.py|amp/grad_scaler\.py)")
DECODE_FILES = re.compile(
    r"/PIL/(\w+ImagePlugin|ImageFile)\.py|imageio|cv2/|/outpace/seams/decode\.py"
    r"|/(soundfile|audioread|tifffile|pydicom|nibabel|rasterio|av|decord|torchcodec|torchaudio)(/|\.py)"
    r"|/torchvision/io/"
)
"""what decodes in C is called by our frame"""
WAIT_FILES = re.compile(r"/(threading|queue|selectors|connection|popen_fork)\.py|multiprocessing/")
SERVE_FILES = re.compile(r"torch/utils/data/(dataset|sampler|distributed|_utils/fetch)\.py")
"""torch's own way from a data set to a batch"""
FETCH_FILE = "torch/utils/data/_utils/fetch.py"
"""which only calls: what goes on in its own lines is that a data set's method ends, and frees what it made"""
MAKING = ("decode", "parse", "storage", "augment")
BY_CHANCE = 0.1
"""of the samples at a line that may be of another phase than they say"""
OURS = re.compile(r"/outpace/(seams/(?!decode\.py|transfer\.py)|measure/)")
"""but for frames that call what the script asked for"""
UNPICKLE_FILES = re.compile(
    r"torch/multiprocessing/reductions|resource_sharer|multiprocessing/reduction"
)


def input_lines(callers: Collection[Caller]) -> set[tuple[str, str, int]]:
    """(file, function, line) of the statements that make the models' input in their callers."""
    found: set[tuple[str, str, int]] = set()
    calling = {(file, line) for file, _, line, _ in callers}
    for file, function, _line, names in callers:
        tree = parse(file)
        if tree is None:
            continue
        wanted = set(names)
        for _ in range(3):
            for node in ast.walk(tree):
                targets, value = _assignment(node)
                if value is None or not targets & wanted or _calls_model(value):
                    continue
                if isinstance(node, ast.For) and node.body[0].lineno == node.lineno:
                    continue  # what it draws and what it does are on one line
                end = node.body[0].lineno - 1 if isinstance(node, ast.For) else node.end_lineno  # type: ignore[attr-defined]
                last = max(node.lineno, end or node.lineno)  # type: ignore[attr-defined]
                lines = range(node.lineno, last + 1)  # type: ignore[attr-defined]
                if any((file, number) in calling for number in lines):
                    continue  # what one model gives is another one's input
                found.update((file, function, number) for number in lines)
                wanted |= {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
    return found


def _assignment(node: ast.AST) -> tuple[set[str], ast.expr | None]:
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
        value: ast.expr = node.value
    elif isinstance(node, ast.For):
        targets, value = [node.target], node.iter
    else:
        return set(), None
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}, value


def _calls_model(value: ast.expr) -> bool:
    """Whether a value is what a model gives, by its name: ``x = model(x)``."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("model", "net", "network", "module")
    )


def source(line: Line) -> str:
    """The text of the user's innermost line."""
    if not line.lines:
        return ""
    file, _, number = line.lines[0]
    return linecache.getline(file, number)


def is_input(line: Line, lines: set[tuple[str, str, int]]) -> bool:
    """Whether the sample was within a statement that makes the model's input."""
    return any(frame in lines for frame in line.lines)


def is_update(line: Line, update: Update | None) -> bool:
    """Whether the sample was in the lines that change parameters."""
    return update is not None and any(update.holds(*frame) for frame in line.lines)


def is_optimizers(line: Line) -> bool:
    """Whether the sample was in what torch has around an optimizer's step: clipping, scaling, rates."""
    if OPTIMIZER_FILES.search(line.file):
        return True
    return "/torch/" in line.file and ".step(" in source(line)


def is_loss(line: Line, lines: Container[Place]) -> bool:
    """Whether the sample was at a line whose operators gradients go through, and not in a metric there."""
    return bool(line.lines) and line.lines[0] in lines and not METRIC_FILES.search(line.file)


def is_logging(line: Line) -> bool:
    """Whether the sample was printing or logging."""
    return bool(LOG_FILES.search(line.file) or LOG_WORDS.search(source(line)))


def is_telling(line: Line) -> bool:
    """The same in a validation, which a line that prints what it gives may call."""
    return bool(LOG_FILES.search(line.file)) or (is_user_file(line.file) and is_logging(line))


def fetch_kind(line: Line, collates: frozenset[str] | None = frozenset()) -> str:
    """``wait``, ``ipc``, ``collate``, ``decode``, ``parse``, ``storage`` or ``augment``.

    ``collates``: functions that put batches together; None where no DataLoader calls any.
    """
    if OURS.search(line.file):
        return "wait"
    if UNPICKLE_FILES.search(line.file):
        return "ipc"
    if "_utils/collate" in line.file or _within(line, collates or frozenset()):
        return "collate"
    if DECODE_FILES.search(line.file):
        return "decode"
    if STORAGE_FILES.search(line.file):
        return "storage"
    if PARSE_FILES.search(line.file):
        return "parse"
    if SERVE_FILES.search(line.file):
        return "collate"
    if not line.lines or (WAIT_FILES.search(line.file) and "dataloader" not in line.file):
        return "wait"
    text = source(line)
    if STORAGE_WORDS.search(text):
        return "storage"
    if PARSE_WORDS.search(text):
        return "parse"
    return "collate" if collates is None and STACK_WORDS.search(text) else "augment"


def _within(line: Line, functions: frozenset[str]) -> bool:
    return any(frame[1] in functions for frame in line.lines)


def kinds(
    samples: Counter[Line], collates: frozenset[str] | None = frozenset()
) -> dict[str, float]:
    """Share of each kind among input samples; waiting for workers is left out.

    Freeing what samples were made from is of the kinds that made them.
    """
    counts: defaultdict[str, float] = defaultdict(float)
    freeing = 0
    for line, count in samples.items():
        kind = fetch_kind(line, collates)
        counts[kind] += count
        freeing += count if kind == "collate" and line.file.endswith(FETCH_FILE) else 0
    counts.pop("wait", None)
    made = sum(counts[kind] for kind in MAKING)
    if made:
        counts["collate"] -= freeing
        for kind in MAKING:
            counts[kind] *= 1 + freeing / made
    total = sum(counts.values())
    return {kind: count / total for kind, count in counts.items() if count}


def at_work(samples: Counter[Line]) -> Counter[Line]:
    """Input samples without those of workers that have nothing to do."""
    return Counter({k: count for k, count in samples.items() if fetch_kind(k) != "wait"})


def places(samples: Counter[Line], most: int = 8) -> list[tuple[str, float]]:
    """The user's lines by their share of the samples, the largest first."""
    counts: Counter[str] = Counter()
    for line, count in samples.items():
        at = place_of(line)
        if at is not None:
            counts[at] += count
    total = sum(samples.values())
    return [(at, count / total) for at, count in counts.most_common(most)] if total else []


def of_steps(samples: Counter[Line]) -> set[tuple[str, str, int]]:
    """(file, function, line) of the user's frames in which steps are made.

    Not those that a few samples lay there: a step may go on between a look at its stack and one at its phase.
    """
    seen, stepping = Counter[tuple[Any, ...]](), Counter[tuple[Any, ...]]()
    for line, count in samples.items():
        for place in {*line.lines, *(frame[:2] for frame in line.lines)}:  # lines and functions
            seen[place] += count
            stepping[place] += count * (line.phase in WORK)
    made = {place for place in stepping if stepping[place] > BY_CHANCE * seen[place]}
    return {frame for line in samples for frame in line.lines if {frame, frame[:2]} <= made}


def tasks(samples: Counter[Line], steps: set[tuple[str, str, int]]) -> list[tuple[str, float]]:
    """Places by their share of the samples, the largest first.

    A function that is no part of ``steps`` is one, told by its busiest line, and so is a loop in one that is.
    """
    functions = {frame[:2] for frame in steps}
    lines: defaultdict[object, Counter[str]] = defaultdict(Counter)
    for line, count in samples.items():
        at = place_of(line)
        if at is not None:
            called = (frame[:2] for frame in reversed(line.lines) if frame[:2] not in functions)
            task = next(called, None) or _loop_around(line.lines[0], steps) or at
            lines[task][at] += count
    total = sum(samples.values())
    found = [
        (max(one, key=lambda at: one[at]), sum(one.values()) / total) for one in lines.values()
    ]
    return sorted(found, key=lambda task: -task[1])


def _loop_around(frame: tuple[str, str, int], steps: set[tuple[str, str, int]]) -> object:
    """The outermost loop around a line that has no line of ``steps`` in it; None where there is none."""
    file, _, number = frame
    busy = [loops_at(file, line) for of, _, line in steps if of == file]
    around = [loop for loop in loops_at(file, number) if not any(loop in loops for loops in busy)]
    return (file, around[0].lineno) if around else None


def kind_places(
    samples: Counter[Line], collates: frozenset[str] | None = frozenset()
) -> dict[str, str]:
    """The user's line that each kind of input work is done at the most.

    "own_collate" is that of a collate function of the user's, where it takes half of the work or more.
    """
    by_kind: dict[str, Counter[Line]] = {}
    for line, count in samples.items():
        by_kind.setdefault(fetch_kind(line, collates), Counter())[line] += count
    within = collates or frozenset()
    own = Counter({line: count for line, count in samples.items() if _within(line, within)})
    if 2 * own.total() >= samples.total():
        by_kind["own_collate"] = own
    found = {kind: places(lines, most=1) for kind, lines in by_kind.items()}
    return {kind: at[0][0] for kind, at in found.items() if at}
