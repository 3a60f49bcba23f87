"""Built kernels on disk: the device's own binaries, shared by all processes of a user."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from foretune.kernels.runtime.properties import DeviceProperties

#: Bytes kept at most; the least recently used go first.
DEFAULT_LIMIT = 2 << 30


class BinaryCache:
    """A folder of binaries.

    Files appear whole or not at all, so that many processes can share it without a lock. One
    that can't be written (read-only home, full disk) costs its use, never the run.

    Parameters
    ----------
    folder : path-like, optional
        Default: $FORETUNE_CACHE, else the user's cache folder.
    limit : int
        Bytes kept at most.
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, limit: int = DEFAULT_LIMIT
    ) -> None:
        self.folder = Path(folder) if folder is not None else _default_folder()
        self.limit = limit

    def get(self, key: str) -> bytes | None:
        """Read a binary; None if there is none."""
        path = self._path(key)
        try:
            binary = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, content = binary[:32], binary[32:]
        return content if hashlib.sha256(content).digest() == digest else None

    def put(self, key: str, binary: bytes) -> None:
        """Keep a binary."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(binary).digest() + binary)
            Path(name).replace(path)
        except OSError:
            return
        self._drop_old()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.bin"

    def _drop_old(self) -> None:
        files = []
        for path in self.folder.glob("??/*.bin"):
            try:
                status = path.stat()
            except OSError:  # another process dropped it
                continue
            files.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size


def binary_key(
    source: str, macros: tuple[tuple[str, int], ...], properties: DeviceProperties
) -> str:
    """Name a binary by all that decides it: source, macros, backend, arch, compiler."""
    parts = (source, repr(sorted(macros)), properties.backend, properties.arch, properties.compiler)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _default_folder() -> Path:
    chosen = os.environ.get("FORETUNE_CACHE")
    if chosen:
        return Path(chosen) / "binaries"
    from platformdirs import user_cache_path

    return user_cache_path("foretune") / "binaries"
