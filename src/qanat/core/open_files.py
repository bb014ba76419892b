"""How many files a process may have open: a connection is one, and the usual limit of 1,024 is soon reached."""

from __future__ import annotations

import contextlib
import resource


def allow_open_files(max_files: int) -> None:
    """Raises this process's limit to this number, as far as the system lets it; never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_files if hard == resource.RLIM_INFINITY else min(hard, max_files)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
