"""Which files may be read because a checked file names them: those beside it, and those of the folders named."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_SIZE_BYTES = 1_000_000
"""Of a file that is read because another one names it."""


@dataclass(frozen=True)
class Neighbours:
    """Reads files that a script sources, without going anywhere the user did not point to.

    Attributes:
        folders: that were named on the command line.
    """

    folders: tuple[Path, ...] = ()

    def read(self, origin: str, path: str) -> str | None:
        """The text of `path`, which the file `origin` names; None if it lies elsewhere, is large, or no text file.

        Links are followed first: a link that leads out of the folder is not read.
        """
        from qanat.deploy.text_files import decode

        try:
            file = Path(path).resolve()
            allowed = [folder.resolve() for folder in (Path(origin).parent, *self.folders)]
            is_inside = any(folder in file.parents for folder in allowed)
            if not is_inside or not file.is_file() or file.stat().st_size > MAX_SIZE_BYTES:
                return None
            return decode(file.read_bytes())
        except (OSError, ValueError, RuntimeError):
            return None
