"""free_ports.py PORT...: prints each loopback port that is free, and another free one for each that is not."""

import contextlib
import socket
import sys


def free_ports(*wanted):
    """Each port wanted that is free, and another one for each that is not; 0 stands for any."""
    with contextlib.ExitStack() as held:  # until all are chosen, so that none is given twice
        return [choose(held, port).getsockname()[1] for port in wanted]


def choose(held, port):
    try:
        return held.enter_context(bind(port))
    except OSError:
        return held.enter_context(bind(0))


def bind(port):
    bound = socket.socket()
    # As the services do: a port in TIME_WAIT counts as free.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


if __name__ == "__main__":
    print(*free_ports(*map(int, sys.argv[1:])))
