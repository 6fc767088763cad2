"""The two drawings of RESULTS.md, as SVG: performance profiles, and metric against seconds."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from contenders import CONTENDERS, OURS
from scores import MOST, share_within
from tables import Field

from outpace.report.axis import Axis, linear_axis, log_axis

COLOURS = ("#888888", "#1b9e77", "#7570b3", "#d95f02", "#e6ab02", "#1f5fbf")
WIDTH, HEIGHT, ROOM = 300, 190, 46
PER_ROW = 3

Line = tuple[str, list[tuple[float, float]]]
"""name of a contender, and points in percent of the panel, from the left and from the bottom"""


def draw(folder: Path, fields: Sequence[Field], found: Mapping[str, Sequence[float]]) -> list[str]:
    """Write both files; the lines of Markdown that show them."""
    drawings = {
        "profile.svg": ("Performance profiles", svg([profile(found)], list(found))),
        "curves.svg": ("Metric against seconds, first seed", curves(fields)),
    }
    for name, (_, text) in drawings.items():
        (folder / name).write_text(text)
    return [f"![{title}]({name})" for name, (title, _) in drawings.items()]


def profile(found: Mapping[str, Sequence[float]]) -> str:
    """Share of the workloads that each contender finished within so many times the shortest time."""
    x, y = linear_axis((1.0, MOST)), linear_axis((0.0, 1.0))
    lines: list[Line] = []
    for name, ratios in found.items():
        if not ratios:
            continue
        steps = sorted({1.0, MOST, *(ratio for ratio in ratios if ratio <= MOST)})
        points = []
        for before, at in zip(steps[:1] + steps, steps, strict=False):
            points += [(at, share_within(ratios, before)), (at, share_within(ratios, at))]
        lines.append((name, [(x.at(a) or 0.0, y.at(b) or 0.0) for a, b in points]))
    return panel("workloads within x times the shortest time", x, y, lines)


def curves(fields: Sequence[Field]) -> str:
    """A panel a workload, its target dashed."""
    names = [name for name in CONTENDERS if any(name in each.curves for each in fields)]
    panels = []
    for each in fields:
        points = {
            name: [(p[0], p[3]) for p in each.curves[name] if p[0] <= each.budget_s]
            for name in names
            if name in each.curves
        }
        target = float(each.entry["target"])
        x = log_axis((s for of in points.values() for s, _ in of), lambda s: f"{s:g} s")
        # Far from the target there is nothing to compare: the first quarter of each is left out.
        near = [m for of in points.values() for _, m in of[len(of) // 4 :]]
        y = linear_axis([*near, target])
        lines: list[Line] = [
            (name, [(x.at(a) or 0.0, up) for a, b in of if (up := y.at(b)) is not None])
            for name, of in points.items()
        ]
        panels.append(panel(f"{each.work.title}: {each.work.measure}", x, y, lines, y.at(target)))
    return svg(panels, names)


def panel(title: str, x: Axis, y: Axis, lines: Sequence[Line], dashed: float | None = None) -> str:
    """One chart, its left upper corner at 0, 0."""

    def at(across: float, up: float) -> str:
        return f"{across / 100 * WIDTH:.1f},{(1 - up / 100) * HEIGHT:.1f}"

    parts = [f'<text x="0" y="-8" font-weight="bold">{html.escape(title)}</text>']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>')
    for tick in x.ticks:
        across = tick.at / 100 * WIDTH
        parts.append(f'<text x="{across:.1f}" y="{HEIGHT + 14}" {MIDDLE}>{tick.label}</text>')
    for tick in y.ticks:
        down = (1 - tick.at / 100) * HEIGHT
        parts.append(f'<text x="-4" y="{down + 4:.1f}" text-anchor="end">{tick.label}</text>')
    if dashed is not None:
        parts.append(f'<path d="M{at(0, dashed)} L{at(100, dashed)}" {DASHED}/>')
    for name, points in lines:
        width = 2.2 if name == OURS else 1.3
        path = " ".join(at(*point) for point in points)
        look = f'stroke="{colour(name)}" stroke-width="{width}"'
        parts.append(f'<polyline points="{path}" fill="none" {look}/>')
    return "\n".join(parts)


MIDDLE = 'text-anchor="middle"'
DASHED = 'stroke="#c00" stroke-dasharray="4 3"'


def colour(name: str) -> str:
    """Of a contender, the same in all drawings."""
    return COLOURS[list(CONTENDERS).index(name)]


def svg(panels: Sequence[str], names: Sequence[str]) -> str:
    """Panels in rows, and below them whose line is whose."""
    columns = min(PER_ROW, len(panels))
    wide, high = WIDTH + 2 * ROOM, HEIGHT + 2 * ROOM
    rows = -(-len(panels) // max(1, columns))
    total, bottom = max(wide * columns, 150 * len(names)), high * rows + 24
    size = f'viewBox="0 0 {total} {bottom}" width="{total}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect width="{total}" height="{bottom}" fill="white"/>',
    ]
    for index, each in enumerate(panels):
        left, top = index % columns * wide + ROOM, index // columns * high + ROOM
        parts.append(f'<g transform="translate({left} {top})">\n{each}\n</g>')
    for index, name in enumerate(names):
        place = f'x="{ROOM + 150 * index}" y="{high * rows + 8}"'
        parts.append(f'<text {place} fill="{colour(name)}">{CONTENDERS[name].title}</text>')
    return "\n".join([*parts, "</svg>", ""])
