"""The cache of packed weights on disk: looked at, emptied, and read from end to end."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from qanat.cli.doctor_checks.check import Check, State, size_text
from qanat.cli.terminal import echo
from qanat.config.packed_cache import PackedCacheSettings
from qanat.core.cache_folder import BAD, PACKED, CachedFile
from qanat.core.private_folder import folder_problem, free_bytes

LITTLE_DISK_BYTES = 2**30


def check_cache(settings: PackedCacheSettings) -> Check:
    """Where it is, what it holds, and what it may still take."""
    folder = settings.open()
    problem = folder_problem(folder.path)
    files = folder.files()
    entries = [each for each in files if each.path.suffix == PACKED]
    used, free, limit = sum(each.size_bytes for each in files), free_bytes(folder.path), folder.max_bytes()
    num_damaged = sum(each.path.suffix == BAD for each in files)
    facts = {
        "folder": str(folder.path),
        "mode": _mode(folder.path),
        "num_entries": len(entries),
        "num_in_use": sum(each.is_in_use for each in entries),
        "num_damaged": num_damaged,
        "used_bytes": used,
        "max_bytes": limit,
        "free_bytes": free,
    }
    if problem:
        advice = (
            "mend that or give --cache-dir (QANAT_CACHE_DIR) another folder; without it each start packs anew"
        )
        return Check("packed weights", State.WARNING, f"cannot be kept: {problem}", advice, facts=facts)
    message = (
        f"{len(entries)} kept in {folder.path}, {size_text(used)} of at most {size_text(limit)}, "
        f"{size_text(free)} free on the disk"
    )
    if num_damaged:
        message += f"; {num_damaged} damaged, set aside"
        return Check(
            "packed weights", State.NOTE, message, "qanat doctor --clear-cache removes them", facts=facts
        )
    if min(free, limit - used) < LITTLE_DISK_BYTES:
        advice = (
            "a large model's weights do not fit: free some space, raise --cache-max-bytes or move --cache-dir"
        )
        return Check("packed weights", State.NOTE, message, advice, facts=facts)
    return Check("packed weights", State.OK, message, facts=facts)


def _mode(path: Path) -> str | None:
    """Rights on a folder, in octal digits; None if it is not there or cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return f"{stat.S_IMODE(found.st_mode):04o}" if stat.S_ISDIR(found.st_mode) else None


def clear_cache(settings: PackedCacheSettings, *, is_json: bool) -> int:
    """Empties it; returns the exit code."""
    folder = settings.open()
    gone = folder.clear()
    left = folder.files()
    used = [each for each in gone if each.is_in_use]
    freed, later = (sum(each.size_bytes for each in gone if each.is_in_use is used) for used in (False, True))
    if is_json:
        report = {
            "folder": str(folder.path),
            "num_removed": len(gone),
            "freed_bytes": freed,
            "in_use_bytes": later,
        }
        echo(json.dumps({**report, "num_left": len(left)}))
    else:
        echo(f"{len(gone)} files removed from {folder.path}, {size_text(freed)} freed.")
        if used:
            echo(
                f"{len(used)} of them are mapped by processes, which keep them: their {size_text(later)} are freed "
                "when these end."
            )
        if left:
            echo(f"{len(left)} files are left: they are being written, or cannot be removed.")
    return 0


def verify_cache(settings: PackedCacheSettings, *, is_json: bool) -> int:
    """Reads all of it; returns 1 if something was damaged."""
    folder = settings.open()
    found: list[tuple[CachedFile, str]] = []
    total = sum(each.size_bytes for each in folder.files() if each.path.suffix == PACKED)
    console = Console(stderr=True)
    columns = (TextColumn("reading packed weights"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        for each, problem in folder.verify(lambda size: bar.advance(task, size)):
            found.append((each, problem))
    damaged = [(each, problem) for each, problem in found if problem]
    if is_json:
        entries = [
            {"name": each.path.name, "size_bytes": each.size_bytes, "problem": problem}
            for each, problem in found
        ]
        echo(json.dumps({"folder": str(folder.path), "entries": entries}))
    else:
        for each, problem in damaged:
            echo(f"{each.path.name}: {problem}; set aside, the next start makes it again.")
        echo(f"{len(found)} read in {folder.path}, {size_text(total)}; {len(damaged) or 'none'} damaged.")
    return 1 if damaged else 0
