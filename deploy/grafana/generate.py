"""Makes the dashboards of boards/ as JSON, for Grafana's file provisioning.

    generate.py           fails when a committed dashboard is not what the code makes
    generate.py --write   writes them
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from boards import admission, engine, fleet, ttft

DASHBOARDS = pathlib.Path(__file__).resolve().parent / "dashboards"


def made():
    """File name and text of each dashboard."""
    for module in (ttft, admission, engine, fleet):
        board = module.board().build()
        # Grafana would number them by itself, and links to a panel would break.
        for number, panel in enumerate(board.panels, start=1):
            panel.id_val = number
        yield f"{board.uid}.json", json.dumps(board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main(args):
    boards = dict(made())
    if args == ["--write"]:
        for name, text in boards.items():
            (DASHBOARDS / name).write_text(text)
        return 0
    committed = {file.name: file.read_text() for file in DASHBOARDS.glob("*.json")}
    stale = sorted(name for name in boards.keys() | committed.keys() if boards.get(name) != committed.get(name))
    for name in stale:
        print(f"{DASHBOARDS / name} is not what boards/ makes; run generate.py --write", file=sys.stderr)
    print(f"{len(boards)} dashboards, {len(stale)} stale")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
