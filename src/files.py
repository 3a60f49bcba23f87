"""Files that appear whole, and what kind of file system they are on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foretune.errors import InputError

#: The kernel's list of mounts.
MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Path of an empty temporary file that takes the place of ``path`` when the block ends well.

    Readers see the old file or the new one, never half of it. If the block raises, the old file
    stays and the temporary one is removed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with replace_file(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("hello")
    ...     Path(folder, "a.txt").read_text()
    'hello'
    """
    # Its imports take as long as reading a file of problems.
    from tempfile import mkstemp

    path = Path(path)
    if path.is_dir():
        raise InputError("this is a directory, expected a file", str(path))
    try:
        # The same folder, because a rename across file systems is not atomic.
        handle, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", str(path)) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def file_system_kind(path: str | os.PathLike[str], mounts: Path = MOUNTS) -> str:
    """Kind of the file system that a path is on, such as "ext4" or "nfs4"; "" if it isn't known.

    Parameters
    ----------
    path : path-like
        It need not exist.
    mounts : Path, optional
        The kernel's list of mounts.

    Examples
    --------
    >>> file_system_kind("/", Path("no such list"))
    ''
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    parts = Path(os.path.realpath(path)).parts
    depth, kind = 0, ""
    for line in lines:
        head, _, tail = line.partition(" - ")
        where = head.split()[4:5]
        if where and tail:
            point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), where[0])).parts
            # Of two mounts on one place the later covers the earlier.
            if len(point) >= depth and parts[: len(point)] == point:
                depth, kind = len(point), tail.split()[0]
    return kind
