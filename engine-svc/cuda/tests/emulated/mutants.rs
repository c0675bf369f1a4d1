//! Kernels broken one way at a time: the checks must find every one of them.

use firstlight_cuda::source::{Family, Module, Number};

use super::checks::check;
use firstlight_cuda_emulate::kernels::Kernels;

/// In `file`, occurrence `nth` of `from` becomes `to`.
struct Mutant {
    file: &'static str,
    nth: usize,
    from: &'static str,
    to: &'static str,
}

const fn mutant(file: &'static str, nth: usize, from: &'static str, to: &'static str) -> Mutant {
    Mutant { file, nth, from, to }
}

const DECODE: &str = "paged_decode.cu";
const PAGED_DECODE: &[Mutant] = &[
    mutant(DECODE, 0, "__syncthreads();", ""),
    mutant(DECODE, 1, "__syncthreads();", ""),
    mutant(DECODE, 0, "(key - begin) / BLOCK_TOKENS", "key / BLOCK_TOKENS"),
    mutant(DECODE, 0, "key % BLOCK_TOKENS", "key % (BLOCK_TOKENS + 1)"),
    mutant(DECODE, 0, "key < end;", "key <= end;"),
    mutant(DECODE, 0, "min(context, begin + span)", "context"),
    mutant(DECODE, 0, "o = LANES_PER_KEY / 2", "o = LANES_PER_KEY / 4"),
    mutant(DECODE, 0, "const float correction = exp2f(top[h] - higher);", "const float correction = 1.0f;"),
    mutant(DECODE, 1, "sum[h] *= correction;", ""),
    mutant(DECODE, 1, "out[h][i] *= correction;", ""),
    mutant(DECODE, 0, "if (first + h >= group) break;", ""),
    mutant(DECODE, 0, "min(first + h, group - 1)", "first + h + 1"),
    mutant(DECODE, 0, "valid[u] && holds", "true"),
    mutant(DECODE, 0, "valid[u] ? x : -infinity()", "x"),
    mutant(DECODE, 0, "context <= span", "context < span"),
    mutant(DECODE, 1, "context <= span", "context < span"),
    mutant(DECODE, 0, "(context + span - 1) / span", "context / span"),
    mutant(DECODE, 0, "base += WARPS * KEYS_PER_STEP", "base += WARPS * KEYS_PER_WARP"),
    mutant(DECODE, 0, "LOWEST = -1e30f", "LOWEST = -__builtin_inff()"),
    mutant(DECODE, 0, "o = LANES_PER_KEY; o < 32", "o = LANES_PER_KEY * 2; o < 32"),
    mutant(DECODE, 0, "lane % LANES_PER_KEY * 8", "lane % LANES_PER_KEY * 4"),
    mutant(DECODE, 0, "split * a.blocks_per_split;", "split;"),
    mutant(DECODE, 0, "blockIdx.y % chunks * H", "blockIdx.y % chunks"),
    mutant(DECODE, 0, "* a.table_stride +", "* count +"),
    mutant(DECODE, 0, "i < count; i += WARPS * 32", "i < count; i += WARPS * 64"),
    mutant(DECODE, 0, "lane < LANES_PER_KEY && holds", "holds"),
    mutant(DECODE, 0, "split += gridDim.x", "split += gridDim.x + 1"),
    mutant(DECODE, 0, "split == 0 || ", ""),
    mutant(DECODE, 0, "total > 0.0f ? o / total : 0.0f", "o / total"),
    mutant(DECODE, 0, "row * a.query_stride", "row * a.heads * D"),
    mutant(DECODE, 0, "out_row * a.splits + split] =", "out_row * a.splits + split + 1] ="),
    mutant("kv.h", 0, "kv_head * BLOCK_TOKENS + place", "place * kv.kv_heads + kv_head"),
    mutant("kv.h", 0, "static_cast<i64>(kv.kv_heads) *", ""),
    mutant("kv.h", 0, "kv.block_stride", "kv.block_stride / 2"),
    mutant("numbers.h", 0, "pair << 16", "pair & 0xffff0000u"),
    mutant("numbers.h", 0, "(u + 0x7fff + (u >> 16 & 1))", "u"),
];

const PREFILL: &str = "paged_prefill.cu";
const PAGED_PREFILL: &[Mutant] = &[
    mutant(PREFILL, 0, "__syncthreads();", ""),
    mutant(PREFILL, 1, "__syncthreads();", ""),
    mutant(PREFILL, 2, "__syncthreads();", ""),
    mutant(PREFILL, 3, "__syncthreads();", ""),
    mutant(PREFILL, 4, "__syncthreads();", ""),
    mutant(PREFILL, 5, "__syncthreads();", ""),
    mutant(PREFILL, 0, "copy_wait<0>();", ""),
    mutant(PREFILL, 0, "copy_wait<1>();", "copy_wait<2>();"),
    mutant(PREFILL, 1, "copy_wait<1>();", "copy_wait<2>();"),
    mutant(PREFILL, 2, "copy_commit();", ""),
    mutant(PREFILL, 0, "key < end;", "key <= end;"),
    mutant(PREFILL, 0, "row < tile.rows;", "row <= tile.rows;"),
    mutant(PREFILL, 0, "key <= position", "key < position"),
    mutant(PREFILL, 0, "key <= position", "key <= position + 1"),
    mutant(PREFILL, 0, "if (row >= tile.rows) continue;", ""),
    mutant(PREFILL, 0, "first + KEYS < end", "first + 2 * KEYS < end"),
    mutant(PREFILL, 0, "first <= last", "first < last"),
    mutant(PREFILL, 0, "D + 8;", "D + 4;"),
    mutant(PREFILL, 0, "lane / 8 % 2 * 8", "lane / 16 * 8"),
    mutant(PREFILL, 0, "b[2], b[3]", "b[3], b[2]"),
    mutant(PREFILL, 1, "b[2], b[3]", "b[3], b[2]"),
    mutant(PREFILL, 0, "half + n % 2 * 2", "half * 2 + n % 2"),
    mutant(PREFILL, 0, "sum[half] *= correction;", ""),
    mutant(PREFILL, 0, "out[n][2 * half] *= correction;", ""),
    mutant(PREFILL, 0, "__shfl_xor_sync(ALL_LANES, higher, 2)", "higher"),
    mutant(PREFILL, 0, "total += __shfl_xor_sync(ALL_LANES, total, 2);", ""),
    mutant(PREFILL, 0, "head / (a.heads / a.kv.kv_heads)", "head % a.kv.kv_heads"),
    mutant(PREFILL, 0, "tile.sequence) * a.table_stride", "tile.sequence)"),
    mutant(PREFILL, 0, "tile.first_row + row)", "row)"),
    mutant("warp.h", 1, "g + 8 * (i & 1)", "g + 8 * (i >> 1)"),
];

const APPEND: &str = "kv_append_rope.cu";
const KV_APPEND_ROPE: &[Mutant] = &[
    mutant(APPEND, 0, "v.x * cosine - v.y", "v.x * cosine + v.y"),
    mutant(APPEND, 0, "cosines + a.pairs", "cosines + a.pairs - 1"),
    mutant(APPEND, 0, "j < a.pairs;", "j <= a.pairs;"),
    mutant(APPEND, 0, "j < a.pairs / 2", "j < a.pairs"),
    mutant(APPEND, 0, "j + a.pairs / 2;", "j + D / 4;"),
    mutant(APPEND, 0, "sines[2 * j + 1]", "sines[2 * j]"),
    mutant(APPEND, 0, "2 * a.pairs;", "a.pairs;"),
    mutant(APPEND, 0, "a.slots[row] / BLOCK_TOKENS", "a.slots[row] / D"),
    mutant(APPEND, 0, "a.slots[row] % BLOCK_TOKENS", "a.positions[row] % BLOCK_TOKENS"),
    mutant(APPEND, 0, "head - heads, place", "head - heads, 0"),
    mutant(APPEND, 0, "+ values_after_keys<D>(a.kv)", ""),
    mutant(APPEND, 0, "heads * (D / 2) : 0", "(heads + 1) * (D / 2) : 0"),
    mutant(APPEND, 0, "i += THREADS", "i += 2 * THREADS"),
    mutant(APPEND, 0, "head < heads + kv_heads", "head <= heads + kv_heads"),
    mutant(APPEND, 0, "rotate(a, cosines, from, from, j)", "rotate(a, cosines, from, from + D, j)"),
];

const NORM_FILE: &str = "norm.cu";
const NORM: &[Mutant] = &[
    mutant(NORM_FILE, 0, "x[i] = v;", ""),
    mutant(NORM_FILE, 0, "i += THREADS", "i += THREADS + 1"),
    mutant(NORM_FILE, 0, "v.z * v.z + v.w * v.w) :", "v.z * v.z) :"),
    mutant(NORM_FILE, 0, "v.x + v.y + (v.z + v.w)", "v.x + v.y + v.z"),
    mutant(NORM_FILE, 0, "squares / a.width + a.epsilon", "squares / a.width"),
    mutant(NORM_FILE, 1, "squares / a.width + a.epsilon", "squares / a.width"),
    mutant(NORM_FILE, 0, "a.delta + row * a.width", "a.delta"),
    mutant(NORM_FILE, 1, "a.delta + row * a.width", "a.delta + static_cast<i64>(blockIdx.x) * a.width"),
    mutant(NORM_FILE, 0, "dz * dz + dw * dw", "dz * dz"),
    mutant(NORM_FILE, 0, "partial + THREADS / 32", "partial"),
    mutant(NORM_FILE, 0, "if (a.bias) b = bias[i];", ""),
    mutant(NORM_FILE, 0, "if (head >= a.heads) return;", ""),
    mutant(NORM_FILE, 0, "+ a.first +", "+"),
    mutant(NORM_FILE, 0, "a.scale[2 * i + 1]", "a.scale[2 * i]"),
    mutant("warp.h", 0, "__syncthreads();", ""),
    mutant("warp.h", 0, "offset = 16;", "offset = 8;"),
    mutant("warp.h", 0, "warp < WARPS;", "warp < WARPS - 1;"),
];

const ACTIVATION_FILE: &str = "activation.cu";
const ACTIVATION: &[Mutant] = &[
    mutant(ACTIVATION_FILE, 0, "row * 2 * a.width", "row * a.width"),
    mutant(ACTIVATION_FILE, 0, "i % per_row * 8", "i % per_row"),
    mutant(ACTIVATION_FILE, 0, "gate + a.width", "gate"),
    mutant(ACTIVATION_FILE, 0, "expf(-g[k])", "expf(g[k])"),
    mutant(ACTIVATION_FILE, 0, "0.044715f * x * x", "0.044715f * x"),
    mutant(ACTIVATION_FILE, 0, "0.7071067812f", "0.7978845608f"),
    mutant(ACTIVATION_FILE, 0, "i < a.rows * per_row", "i <= a.rows * per_row"),
    mutant(ACTIVATION_FILE, 0, "i < count", "i < count - 1"),
];

const EMBED_FILE: &str = "embed.cu";
const EMBED: &[Mutant] = &[
    mutant(EMBED_FILE, 0, "source < 0", "source <= 0"),
    mutant(EMBED_FILE, 0, "a.sampled[source]", "a.sampled[row]"),
    mutant(EMBED_FILE, 0, "a.positions[row]", "row"),
    mutant(EMBED_FILE, 0, "v.y + p.y", "v.y"),
    mutant(EMBED_FILE, 0, "i < a.width / 2", "i < a.width / 4"),
];

const SAMPLE_FILE: &str = "sample.cu";
const SAMPLE: &[Mutant] = &[
    mutant(SAMPLE_FILE, 0, "if (logit != logit) return 0;", ""),
    mutant(SAMPLE_FILE, 0, "logit + 0.0f", "logit"),
    mutant(SAMPLE_FILE, 0, "return first - id;", "return id;"),
    mutant(SAMPLE_FILE, 0, "(1u << bits) - 1", "(1u << bits) - 2"),
    mutant(SAMPLE_FILE, 0, "? 16 : 24", "? 16 : 16"),
    mutant(SAMPLE_FILE, 0, " + (before + l < l)", ""),
    mutant(SAMPLE_FILE, 0, "bin == its_bin", "true"),
    mutant(SAMPLE_FILE, 0, " & 0xfffffu", ""),
    mutant(SAMPLE_FILE, 0, "(amount >> 20)", "(amount >> 32)"),
    mutant(SAMPLE_FILE, 0, "if (lane == leader) s.add", "s.add"),
    mutant(SAMPLE_FILE, 0, "left &= ~together;", "left = 0;"),
    mutant(SAMPLE_FILE, 0, "if (left >> lane & 1) s.add(bin, amount);", ""),
    mutant(SAMPLE_FILE, 0, "id < row.vocabulary && rank", "rank"),
    mutant(SAMPLE_FILE, 0, "if (h) atomicAdd", "if (amount >> 32) atomicAdd"),
    mutant(SAMPLE_FILE, 0, "odds >= least", "odds > least"),
    mutant(SAMPLE_FILE, 0, "/ temperature", ""),
    mutant(SAMPLE_FILE, 0, "__syncthreads();", ""),
    mutant(SAMPLE_FILE, 1, "__syncthreads();", ""),
    mutant(SAMPLE_FILE, 2, "__syncthreads();", ""),
    mutant(SAMPLE_FILE, 3, "__syncthreads();", ""),
    mutant(SAMPLE_FILE, 4, "__syncthreads();", ""),
    mutant(SAMPLE_FILE, 5, "__syncthreads();", ""),
    mutant(SAMPLE_FILE, 0, ">= row.last) sum", ">= 0) sum"),
    mutant(SAMPLE_FILE, 0, "target < upto", "target <= upto"),
    mutant(SAMPLE_FILE, 0, "before + amount > target", "before + amount >= target"),
    mutant(SAMPLE_FILE, 0, "255 - lane * 8 - i", "lane * 8 + i"),
    mutant(SAMPLE_FILE, 0, "s.result[1] = target - before;", "s.result[1] = target;"),
    mutant(SAMPLE_FILE, 0, "if (lane >= by) upto", "upto"),
    mutant(SAMPLE_FILE, 0, "sampling.top_k - 1", "sampling.top_k"),
    mutant(SAMPLE_FILE, 0, "target > 0 ? target - 1 : 0", "target"),
    mutant(SAMPLE_FILE, 0, "row.least = sampling.min_p;", ""),
    mutant(SAMPLE_FILE, 0, "sampling.temperature == 0.0f || ", ""),
    mutant(SAMPLE_FILE, 0, "top == infinity()", "false"),
    mutant(SAMPLE_FILE, 0, "return 0;\n  const float top", "return best;\n  const float top"),
    mutant(SAMPLE_FILE, 0, "sampling.top_k != 0 || sampling.top_p < 1.0f", "false"),
    mutant(SAMPLE_FILE, 0, "a.sampling[row]", "a.sampling[0]"),
    mutant(SAMPLE_FILE, 0, "* a.stride", "* a.vocabulary"),
    mutant(SAMPLE_FILE, 0, "a.stride, a.vocabulary", "a.stride, a.stride"),
    mutant(SAMPLE_FILE, 0, "x >> 27", "x >> 28"),
];

/// Breaks the bf16 module of `family`, of a head dimension that leaves lanes idle.
fn every_mutant_is_caught(family: Family, mutants: &[Mutant]) {
    let module = Module { family, number: Number::Bf16, head_dim: 80 };
    let mut survivors = Vec::new();
    for (index, mutant) in mutants.iter().enumerate() {
        let edit = |text: String| {
            let (at, _) = text
                .match_indices(mutant.from)
                .nth(mutant.nth)
                .unwrap_or_else(|| panic!("{} has no {:?} #{}", mutant.file, mutant.from, mutant.nth));
            [&text[..at], mutant.to, &text[at + mutant.from.len()..]].concat()
        };
        let name = format!("mutant-{}-{index}", family.name());
        let kernels = Kernels::build_edited(&module, mutant.file, edit, &name);
        let text = format!("{} #{}: {:?} -> {:?}", mutant.file, mutant.nth, mutant.from, mutant.to);
        match check(&kernels) {
            Ok(_) => survivors.push(text),
            Err(reason) => println!("caught {text}\n       {reason}"),
        }
    }
    println!("{} of {} mutants caught", mutants.len() - survivors.len(), mutants.len());
    assert!(survivors.is_empty(), "not caught:\n{}", survivors.join("\n"));
}

#[test]
fn every_broken_decode_attention_is_caught() {
    every_mutant_is_caught(Family::PagedDecode, PAGED_DECODE);
}

#[test]
fn every_broken_prefill_attention_is_caught() {
    every_mutant_is_caught(Family::PagedPrefill, PAGED_PREFILL);
}

#[test]
fn every_broken_append_is_caught() {
    every_mutant_is_caught(Family::KvAppendRope, KV_APPEND_ROPE);
}

#[test]
fn every_broken_norm_is_caught() {
    every_mutant_is_caught(Family::Norm, NORM);
}

#[test]
fn every_broken_activation_is_caught() {
    every_mutant_is_caught(Family::Activation, ACTIVATION);
}

#[test]
fn every_broken_embedding_is_caught() {
    every_mutant_is_caught(Family::Embed, EMBED);
}

#[test]
fn every_broken_choice_is_caught() {
    every_mutant_is_caught(Family::Sample, SAMPLE);
}
