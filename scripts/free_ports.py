"""free_ports.py PORT...: prints each loopback port that is free, and another free one for each that is not."""

import socket
import sys


def bind(port):
    bound = socket.socket()
    # As the services do: a port in TIME_WAIT counts as free.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


held = []  # until all are chosen, so that none is given twice
for wanted in map(int, sys.argv[1:]):
    try:
        held.append(bind(wanted))
    except OSError:
        held.append(bind(0))
print(*(bound.getsockname()[1] for bound in held))
