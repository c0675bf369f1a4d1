"""Token ids of perplexity/text.txt (speeches of 1863, 1865 and a declaration of 1776: public domain), by llama.cpp."""

import json


def write(folder, tokenize):
    ids = tokenize((folder / "text.txt").read_text())
    (folder / "ids.json").write_text(json.dumps(ids) + "\n")
