"""The child's side of a worker: run as a module with the number of its end of the pipe."""

from __future__ import annotations

import os
import select
import sys
import threading
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any


def main(descriptor: int) -> None:
    """Answer until the other end is closed."""
    threading.Thread(target=_end_with_parent, args=(descriptor,), daemon=True).start()
    connection: Connection[Any, Any] = Connection(descriptor)
    function: Any = None
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        answer: Any = None
        raised = None
        try:
            if function is None:
                factory, arguments = message
                module, _, name = factory.partition(":")
                function = getattr(import_module(module), name)(*arguments)
            else:
                answer = function(message)
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
        connection.send((answer, raised))


def _end_with_parent(descriptor: int) -> None:
    """End at once when the other end is closed, whatever the main thread is waiting for."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
