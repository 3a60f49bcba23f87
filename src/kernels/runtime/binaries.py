"""Built kernels on disk: the device's own binaries, shared by all processes of a user."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from foretune.kernels.runtime.properties import DeviceProperties

#: Bytes kept at most; the least recently used go first.
DEFAULT_LIMIT = 2 << 30
#: Seconds that a failure to compile is believed: a full disk may have been its reason.
FAILURE_LIFE = 24 * 3600.0


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
        # Bytes written since the folder was looked through; as if all had been, at first.
        self._unseen = limit

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
        self._write(self._path(key), hashlib.sha256(binary).digest() + binary)

    def failure(self, key: str) -> str | None:
        """Say why there can be no binary; None if that isn't known."""
        path = self._path(key, ".failed")
        try:
            if time.time() - path.stat().st_mtime > FAILURE_LIFE:
                return None
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def put_failure(self, key: str, reason: str) -> None:
        """Remember that a kernel can't be built, so that nobody tries again for a day."""
        self._write(self._path(key, ".failed"), reason.encode(errors="replace"))

    def _path(self, key: str, ending: str = ".bin") -> Path:
        return self.folder / key[:2] / f"{key}{ending}"

    def _write(self, path: Path, content: bytes) -> None:
        import tempfile  # its imports take as long as loading a kernel

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(path)
        except OSError:
            with suppress(OSError):
                Path(name).unlink()
            return
        self._unseen += len(content)
        if self._unseen > self.limit / 16:
            self._drop_old()

    def _drop_old(self) -> None:
        self._unseen = 0
        files = []
        for path in self.folder.glob("??/*"):
            try:
                status = path.stat()
            except OSError:  # another process dropped it
                continue
            files.append((status.st_mtime, status.st_size, path))
        excess = sum(size for _, size, _ in files) - self.limit
        for _, size, path in sorted(files):
            if excess <= 0:
                return
            with suppress(OSError):
                path.unlink()
            excess -= size


def binary_key(
    source: str, macros: tuple[tuple[str, int], ...], properties: DeviceProperties
) -> str:
    """Name a binary by all that decides it: source, macros, backend, device, compiler."""
    # Processors are all of the arch "cpu": the name tells them apart.
    device = (properties.backend, properties.name, properties.arch, properties.compiler)
    parts = (source, repr(sorted(macros)), *device)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _default_folder() -> Path:
    chosen = os.environ.get("FORETUNE_CACHE")
    if chosen:
        return Path(chosen) / "binaries"
    from platformdirs import user_cache_path

    return user_cache_path("foretune") / "binaries"
