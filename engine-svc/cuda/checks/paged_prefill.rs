//! Attention of prompt rows against 64-bit attention, and against itself in other chunks.

use firstlight_cuda::arguments::{PagedPrefill, PrefillTile};
use firstlight_cuda::launch::Launch;
use firstlight_cuda::tiles;

use super::Checked;
use super::numbers::{Random, Worst, roundoff, widen};
use super::paged::Paged;
use crate::platform::{Buf, Kernels};

/// `rows` of a sequence from `start` on.
#[derive(Clone, Copy)]
struct Chunk {
    start: usize,
    rows: usize,
}

pub fn check(kernels: &Kernels) -> Checked {
    let mut random = Random::new(2);
    let mut worst = Worst::default();
    let chunk = |start, rows| Chunk { start, rows };
    let edges = [
        vec![chunk(0, 1), chunk(0, 15), chunk(0, 16), chunk(0, 17), chunk(0, 65)],
        vec![
            chunk(1, 1),
            chunk(15, 2),
            chunk(16, 5),
            chunk(63, 3),
            chunk(64, 33),
            chunk(127, 1),
            chunk(100, 64),
        ],
    ];
    for (index, chunks) in edges.iter().enumerate() {
        run(kernels, chunks, (2, 1 + 2 * index), index == 0, &mut random, &mut worst)?;
    }
    for index in 0..2 {
        let chunks: Vec<Chunk> =
            (0..random.between(1, 3)).map(|_| chunk(random.between(0, 90), random.between(1, 80))).collect();
        let heads = (random.between(1, 2), random.between(1, 3));
        run(kernels, &chunks, heads, index == 0, &mut random, &mut worst)?;
    }
    chunks_do_not_matter(kernels, &mut random)?;
    Ok(worst.part())
}

/// The prompt rows of several sequences in one launch, in each order of threads.
struct Prefill {
    out: Vec<u16>,
    queries: Vec<u16>,
}

fn launch(
    kernels: &Kernels,
    paged: &Paged,
    chunks: &[Chunk],
    heads: usize,
    queries: Vec<u16>,
    low: bool,
) -> Result<Prefill, String> {
    let dim = kernels.module().head_dim;
    let rows: usize = chunks.iter().map(|chunk| chunk.rows).sum();
    let query_stride = queries.len() / rows;
    let mut tiles = tiles::cut(chunks.iter().map(|chunk| (chunk.rows, chunk.start)));
    tiles.push(PrefillTile::default());
    let device_tiles = Buf::input(&tiles, "tiles", low);
    let device_queries = Buf::input(&queries, "queries", low);
    let mut out = Buf::<u16>::output(rows * heads * dim, "out");
    let arguments = PagedPrefill {
        out: out.device(),
        queries: device_queries.device(),
        kv: paged.kv(),
        block_table: paged.device_table.device(),
        tiles: device_tiles.device(),
        query_stride: query_stride as i64,
        scale_log2: paged.layout.scale_log2(),
        heads: heads as i32,
        table_stride: paged.table_stride as i32,
        reserved: 0,
    };
    let mut first: Option<Vec<u16>> = None;
    for seed in 0..3 {
        out.poison();
        kernels.launch(&Launch::paged_prefill(tiles.len(), heads), &arguments, seed)?;
        match &first {
            None => first = Some(out.read()),
            Some(first) if out.read() != *first => {
                return Err("the order of threads changes the result".into());
            }
            Some(_) => {}
        }
    }
    Ok(Prefill { out: out.read(), queries })
}

fn run(
    kernels: &Kernels,
    chunks: &[Chunk],
    (kv_heads, group): (usize, usize),
    low: bool,
    random: &mut Random,
    worst: &mut Worst,
) -> Result<(), String> {
    let (number, dim) = (kernels.module().number, kernels.module().head_dim);
    let heads = kv_heads * group;
    let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.start + chunk.rows).collect();
    let paged = Paged::random(kernels.module(), kv_heads, &lengths, low, random);
    let rows: usize = chunks.iter().map(|chunk| chunk.rows).sum();
    let query_stride = (heads + 2 * kv_heads) * dim;
    let queries = random.normals(number, rows * query_stride);
    let Prefill { out, queries } = launch(kernels, &paged, chunks, heads, queries, low)?;
    let places = chunks.iter().enumerate().flat_map(|(sequence, chunk)| {
        (chunk.start..chunk.start + chunk.rows).map(move |position| (sequence, position))
    });
    for (row, (sequence, position)) in places.enumerate() {
        for head in 0..heads {
            let query: Vec<f64> = queries[row * query_stride + head * dim..][..dim]
                .iter()
                .map(|&bits| widen(number, bits))
                .collect();
            let (want, bound) = paged.attend(sequence, head / group, position + 1, &query);
            for (d, &bits) in out[(row * heads + head) * dim..][..dim].iter().enumerate() {
                // Weights are rounded before they meet the values.
                let allowed = roundoff(number) * (want[d].abs() + bound[d]) + 1e-5;
                let place = || format!("row {row}, position {position}, head {head}, dimension {d}");
                worst.compare(widen(number, bits), want[d], allowed, place)?;
            }
        }
    }
    Ok(())
}

/// A prompt in one piece and in pieces, with a neighbour, gives the same bits.
fn chunks_do_not_matter(kernels: &Kernels, random: &mut Random) -> Result<(), String> {
    let (number, dim) = (kernels.module().number, kernels.module().head_dim);
    let (heads, len) = (2, 131);
    let paged = Paged::random(kernels.module(), heads, &[len, 20], false, random);
    let row_elements = 3 * heads * dim;
    let queries = random.normals(number, len * row_elements);
    let whole = launch(kernels, &paged, &[Chunk { start: 0, rows: len }], heads, queries.clone(), false)?.out;
    for (start, rows) in [(0, 37), (37, 64), (101, 30)] {
        let mut chunk_queries = queries[start * row_elements..][..rows * row_elements].to_vec();
        chunk_queries.extend(random.normals(number, 20 * row_elements));
        let chunks = [Chunk { start, rows }, Chunk { start: 0, rows: 20 }];
        let out = launch(kernels, &paged, &chunks, heads, chunk_queries, false)?.out;
        if out[..rows * heads * dim] != whole[start * heads * dim..][..rows * heads * dim] {
            return Err(format!("rows {start} to {} depend on their chunk", start + rows));
        }
    }
    Ok(())
}
