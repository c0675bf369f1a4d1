"""Small GGUF files: one tensor of every supported type with its dequantized values, and a whole tiny model."""

import json

import gguf
import numpy
import safetensors.torch
import torch
import transformers

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"]
ROWS, COLUMNS = 3, 512


def write_types(folder):
    """types.gguf, and types.f32: the tensors' values one after the other, each [3, 512], in the order of TYPES."""
    random = numpy.random.default_rng(20)
    writer = gguf.GGUFWriter(folder / "types.gguf", "llama")
    # One metadata value of every kind a reader meets.
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4_000_000_000)
    writer.add_int32("test.i32", -2_000_000_000)
    writer.add_uint64("test.u64", 2**63)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "Grüße 🌍")
    writer.add_array("test.strings", ["a", "", "ü"])
    writer.add_array("test.ints", [1, -2, 3])
    values = []
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        raw = random_blocks(random, kind) if name.endswith("_K") else quantized(random, kind)
        values.append(gguf.dequantize(raw, kind).astype("<f4").reshape(ROWS, COLUMNS))
        assert numpy.isfinite(values[-1]).all()
        writer.add_tensor(f"{name.lower()}.weight", raw, raw_dtype=kind)
    finish(writer)
    (folder / "types.f32").write_bytes(numpy.stack(values).tobytes())


def quantized(random, kind):
    return gguf.quantize(random.standard_normal((ROWS, COLUMNS), numpy.float32), kind)


def random_blocks(random, kind):
    """The k-quants have no quantizer in Python: any bits are a valid block, once its f16 scales are tame."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (ROWS * COLUMNS // block, size), numpy.uint8)
    scales = random.uniform(0.001, 0.02, (len(blocks), 2)).astype("<f2").view(numpy.uint8)
    if kind == gguf.GGMLQuantizationType.Q6_K:
        blocks[:, -2:] = scales[:, :2]
    else:
        blocks[:, :4] = scales
    return blocks.reshape(ROWS, -1)


def write_tiny_llama(folder, source):
    """tiny-llama.gguf: the folder `source` as a GGUF (same logits, bf16), its q and k rows permuted as GGUF does."""
    config = transformers.AutoConfig.from_pretrained(source)
    weights = safetensors.torch.load_file(source / "model.safetensors")
    writer = gguf.GGUFWriter(folder / "tiny-llama.gguf", "llama")
    writer.add_name("tiny-llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_vocabulary(writer, json.loads((source / "tokenizer.json").read_text()))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in weights.items():
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:
                rows, columns = weight.shape
                weight = weight.view(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
        kind = gguf.GGMLQuantizationType.F32 if weight.dim() == 1 else gguf.GGMLQuantizationType.BF16
        data = gguf.quantize(weight.to(torch.float32).numpy(), kind)
        writer.add_tensor(names.get_name(name, (".weight",)), data, raw_dtype=kind)
    finish(writer)


def add_vocabulary(writer, tokenizer):
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {token["content"] for token in tokenizer["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in special else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
