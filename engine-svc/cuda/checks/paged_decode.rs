//! Attention of decode rows against 64-bit attention.

use firstlight_cuda::arguments::PagedDecode;
use firstlight_cuda::kv::BLOCK_TOKENS;
use firstlight_cuda::launch::{DecodeShape, Launch};

use super::Checked;
use super::numbers::{Random, Worst, roundoff, widen};
use super::paged::Paged;
use crate::platform::{Buf, Kernels};

struct Case {
    kv_heads: usize,
    group: usize,
    blocks_per_split: usize,
    split_columns: usize,
    contexts: Vec<usize>,
    /// Inputs against the guard below them.
    low: bool,
}

pub fn check(kernels: &Kernels) -> Checked {
    let mut random = Random::new(1);
    let mut worst = Worst::default();
    let mut cases: Vec<Case> = [(1, 1, true), (2, 2, false), (3, 1, false), (7, 2, true)]
        .into_iter()
        .map(|(group, split_columns, low)| {
            let blocks_per_split = 2;
            let span = blocks_per_split * BLOCK_TOKENS;
            let edges = [0, 1, 15, 16, 17, span - 1, span, span + 1, 2 * span, 3 * span + 5, 0];
            Case { kv_heads: 2, group, blocks_per_split, split_columns, contexts: edges.to_vec(), low }
        })
        .collect();
    // More blocks in a split than threads, and every split in a column of its own.
    cases.push(Case {
        kv_heads: 1,
        group: 1,
        blocks_per_split: 150,
        split_columns: 2,
        contexts: vec![2403],
        low: true,
    });
    for index in 0..4 {
        let rows = random.between(1, 4);
        cases.push(Case {
            kv_heads: random.between(1, 3),
            group: random.between(1, 8),
            blocks_per_split: random.between(1, 5),
            split_columns: random.between(1, 4),
            contexts: (0..rows).map(|_| random.between(0, 150)).collect(),
            low: index % 2 == 0,
        });
    }
    for case in &cases {
        run(kernels, case, &mut random, &mut worst)?;
    }
    Ok(worst.part())
}

fn run(kernels: &Kernels, case: &Case, random: &mut Random, worst: &mut Worst) -> Result<(), String> {
    let (number, dim) = (kernels.module().number, kernels.module().head_dim);
    let (rows, heads) = (case.contexts.len(), case.kv_heads * case.group);
    let span = case.blocks_per_split * BLOCK_TOKENS;
    let splits = case.contexts.iter().max().map_or(1, |longest| longest.div_ceil(span).max(1));
    let shape = DecodeShape {
        rows,
        heads,
        kv_heads: case.kv_heads,
        head_dim: dim,
        blocks_per_split: case.blocks_per_split,
        splits,
        split_columns: case.split_columns.min(splits),
    };
    let paged = Paged::random(kernels.module(), case.kv_heads, &case.contexts, case.low, random);
    let query_stride = (heads + 2 * case.kv_heads) * dim;
    // Beside the queries lie keys and values that are not attention's business.
    let mut qkv = vec![0xFFFF; rows * query_stride];
    for row in qkv.chunks_mut(query_stride) {
        row[..heads * dim].copy_from_slice(&random.normals(number, heads * dim));
    }
    let queries = Buf::input(&qkv, "queries", case.low);
    let contexts: Vec<i32> = case.contexts.iter().map(|&context| context as i32).collect();
    let context = Buf::input(&contexts, "context", case.low);
    let mut out = Buf::<u16>::output(rows * heads * dim, "out");
    let mut partial_out = Buf::output(rows * heads * splits * dim, "partial_out");
    let mut partial_softmax = Buf::output(rows * heads * splits, "partial_softmax");
    let arguments = PagedDecode {
        out: out.device(),
        queries: queries.device(),
        kv: paged.kv(),
        block_table: paged.device_table.device(),
        context: context.device(),
        partial_out: partial_out.device(),
        partial_softmax: partial_softmax.device(),
        query_stride: query_stride as i64,
        scale_log2: paged.layout.scale_log2(),
        heads: heads as i32,
        table_stride: paged.table_stride as i32,
        blocks_per_split: case.blocks_per_split as i32,
        splits: splits as i32,
        reserved: 0,
    };
    let mut first: Option<Vec<u16>> = None;
    for seed in 0..3 {
        out.poison();
        partial_out.poison();
        partial_softmax.poison();
        kernels.launch(&Launch::paged_decode(&shape), &arguments, seed)?;
        if splits > 1 {
            kernels.launch(&Launch::paged_decode_join(&shape), &arguments, seed)?;
        }
        match &first {
            None => first = Some(out.read()),
            Some(first) if out.read() != *first => {
                return Err("the order of threads changes the result".into());
            }
            Some(_) => {}
        }
    }
    for (index, got) in out.read().chunks(dim).enumerate() {
        let (row, head) = (index / heads, index % heads);
        let query: Vec<f64> =
            qkv[row * query_stride + head * dim..][..dim].iter().map(|&bits| widen(number, bits)).collect();
        let (want, bound) = paged.attend(row, head / case.group, case.contexts[row], &query);
        for (d, &bits) in got.iter().enumerate() {
            let allowed = roundoff(number) * want[d].abs() + 1e-5 * (bound[d] + 0.01);
            let place = || format!("context {}, head {head}, dimension {d}", case.contexts[row]);
            worst.compare(widen(number, bits), want[d], allowed, place)?;
        }
    }
    Ok(())
}
