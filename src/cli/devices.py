"""Show the devices that kernels can run on here, and why others are absent."""

from __future__ import annotations

import argparse

from foretune.cli.json_text import to_json
from foretune.cli.table import format_table
from foretune.kernels.runtime.listing import DeviceListing, list_devices
from foretune.kernels.runtime.properties import DeviceProperties

EXAMPLES = """\
examples:
  foretune devices
  foretune devices --json

exit codes: 0 there is a device; 1 there is none
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """List the devices and return the exit code."""
    listing = list_devices()
    print(to_json(listing.to_dict()) if options.json else _text(listing), end="\n" * options.json)
    return 0 if listing.present else 1


def _text(listing: DeviceListing) -> str:
    headers = ["device", "name", "arch", "units", "wave", "LDS", "MHz", "GB/s", "memory", "driver"]
    rows = [[name, *_cells(properties)] for name, properties in listing.present.items()]
    table = format_table(headers, rows, right=headers[3:9]) if rows else ""
    absent = "".join(f"no {name}: {reason}\n" for name, reason in listing.absent.items())
    return table + absent


def _cells(device: DeviceProperties) -> list[str]:
    return [
        *(device.name, device.arch, str(device.compute_units), str(device.wave_size)),
        f"{device.local_memory / 1024:.0f} KiB",
        *(_known(device.clock_mhz), _known(device.bandwidth_gbs)),
        f"{device.memory_bytes / 2**30:.1f} GiB",
        device.driver,
    ]


def _known(number: float) -> str:
    return f"{number:.0f}" if number else "?"
