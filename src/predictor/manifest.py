"""What a bundle's files must be: their checksums, as `manifest.json` holds them.

Each part of a bundle is sound by itself when it comes from another bundle. The checksums tell.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path

from foretune.errors import InputError
from foretune.predictor.forest import load_forests

MANIFEST_FILE = "manifest.json"
# What answers depend on; the rest is for people.
_SUFFIXES = (".json", ".forests")
_FOR_PEOPLE = (MANIFEST_FILE, "metrics.json")


def checksums(folder: Path) -> dict[str, str]:
    """Checksums of the files of a bundle that answers depend on, by name."""
    return {
        file.name: load_forests(file).checksum
        if file.suffix == ".forests"
        else checksum(file.read_bytes())
        for file in sorted(folder.iterdir())
        if file.suffix in _SUFFIXES and file.name not in _FOR_PEOPLE
    }


def checksum(content: bytes) -> str:
    """CRC-32 in hexadecimal: against mix-ups and damage, not against malice.

    Examples
    --------
    >>> checksum(b"foretune")
    '69a15020'
    """
    return f"{zlib.crc32(content):08x}"


def expected_checksums(folder: Path) -> Mapping[str, str]:
    """Checksums that a bundle's manifest states; empty if it has none (an unfinished bundle).

    Raises
    ------
    InputError
        If the manifest is damaged.
    """
    path = folder / MANIFEST_FILE
    try:
        content = json.loads(path.read_bytes())
        files = content.get("files", {})
        if not all(isinstance(value, str) for value in files.values()):
            raise ValueError("files")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", str(path)) from None
    except (AttributeError, ValueError, RecursionError) as error:
        raise InputError(f"is damaged ({error}); train it again", str(path)) from None
    return dict(files)


def demand_checksum(found: str, path: Path, expected: Mapping[str, str]) -> None:
    """Refuse a file that isn't the one that the manifest speaks of."""
    wanted = expected.get(path.name, found)
    if found != wanted:
        raise InputError(
            f"this is not the file that belongs here (checksum {found}, the manifest says "
            f"{wanted}); install or train the model again",
            str(path),
        )
