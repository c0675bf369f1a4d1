#!/usr/bin/env python3
"""Writes blocks.gguf: for each format a tensor NAME of random blocks and NAME.values, what the Python
package `gguf` (MIT, by the ggml authors) reads from them. Run: pip install gguf==0.19.0; make_blocks.py
"""
from pathlib import Path

import gguf
import numpy as np

ROWS, ROW = 3, 512
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
# Byte offsets of half-precision fields in a block: random bits there would be NaN or huge.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

random = np.random.default_rng(20261129)
writer = gguf.GGUFWriter(Path(__file__).with_name("blocks.gguf"), "none")
for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    plain = random.normal(size=(ROWS, ROW)).astype(np.float32)
    if name == "F32":
        data = plain
    elif name in ("F16", "BF16"):
        data = gguf.quantize(plain, kind)
    else:
        data = random.integers(0, 256, (ROWS, ROW // values, size), dtype=np.uint8)
        for at in HALVES[name]:
            fields = random.normal(scale=0.05, size=data.shape[:2]).astype(np.float16)
            data[:, :, at : at + 2] = fields[..., None].view(np.uint8)
        data = data.reshape(ROWS, -1)
    writer.add_tensor(name.lower(), data, raw_dtype=kind)
    writer.add_tensor(name.lower() + ".values", gguf.dequantize(data, kind).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
