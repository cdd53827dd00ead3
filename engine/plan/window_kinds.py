"""What the kinds of window have in common, for the rules that ask."""

from __future__ import annotations

from millstream.engine.language.recipes import WindowKind

# The extent depends on which rows there are, so that WHERE and joins must not come first (K17).
FORMED_FIRST = (WindowKind.ROWS, WindowKind.SESSION)
# Without an aggregate each row comes once per window, with the window's bounds.
PER_WINDOW = (WindowKind.HOPPING, WindowKind.CUMULATE, WindowKind.SESSION)
# Windows that end at an instant, whose join is a bound on the difference of the times (K2).
AT_INSTANT = (WindowKind.SLIDING, WindowKind.NOW, WindowKind.UNBOUNDED)
