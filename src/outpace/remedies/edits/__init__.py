"""Edits of a script as a person would make them, found by the syntax tree and made in the text.

Each takes the script's text and gives it changed. Where an edit is not sure of what it sees, or the
text would not parse any more, the text comes back as it was. ``where`` is the ``file:line`` that
was measured: its line is believed only where it holds what is looked for.

Honest limits: what is reached through another name (a loader passed to a function, a class made
elsewhere) is not followed.
"""

from outpace.remedies.edits.arguments import set_optimizer_arguments
from outpace.remedies.edits.calls import (
    add_method,
    decorate,
    gradients_to_none,
    keep_on_device,
    open_images_by,
    set_number_of_threads,
    without_anomaly_detection,
    without_checkpointing,
)
from outpace.remedies.edits.lines import (
    ELSEWHERE,
    add_import,
    insert_after_imports,
    insert_before_imports,
    moved,
    names_any,
)
from outpace.remedies.edits.loaders import (
    copy_without_waiting,
    data_change,
    draw_slices,
    hands_samples_out,
    has_workers,
    made_here,
    set_loader_arguments,
    wrap_data_set,
    wrap_loop,
)
from outpace.remedies.edits.model import after_model, under_autocast

__all__ = [
    "ELSEWHERE",
    "add_import",
    "add_method",
    "after_model",
    "copy_without_waiting",
    "data_change",
    "decorate",
    "draw_slices",
    "gradients_to_none",
    "hands_samples_out",
    "has_workers",
    "insert_after_imports",
    "insert_before_imports",
    "keep_on_device",
    "made_here",
    "moved",
    "names_any",
    "open_images_by",
    "set_loader_arguments",
    "set_number_of_threads",
    "set_optimizer_arguments",
    "under_autocast",
    "without_anomaly_detection",
    "without_checkpointing",
    "wrap_data_set",
    "wrap_loop",
]
