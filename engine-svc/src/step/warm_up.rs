//! What runs before the loop serves, on the loop's own thread: pages are touched, threads started and libraries set up
//! here, some of them once for each thread, and not in the first request's TTFT.

use crate::backend::{Backend, BackendError, Chunk};
use crate::sample::Sampling;

/// A short prompt, prompts of as many rows as the backend asks for, then one row that decodes, all in blocks that
/// nobody uses yet.
///
/// # Errors
/// When a forward fails.
pub(super) fn warm_up(backend: &mut dyn Backend) -> Result<(), BackendError> {
    let short = backend.kv().block_tokens.min(backend.info().context_length).saturating_sub(1);
    for rows in [&[short][..], backend.warm_up_rows()].concat() {
        let prompts = Prompts::of(rows, backend);
        if !prompts.tables.is_empty() {
            backend.forward(&prompts.chunks())?;
        }
    }
    backend.forward(&[Chunk {
        tokens: &[0],
        start: short,
        blocks: &[0],
        sample: Some(&Sampling::GREEDY),
    }])?;
    Ok(())
}

/// Sequences, each in blocks of its own.
struct Prompts {
    tokens: Vec<u32>,
    /// Of each: its tokens, and its blocks.
    tables: Vec<(usize, Vec<u32>)>,
}

impl Prompts {
    /// As many as it takes for so many rows, as far as the pool reaches.
    fn of(rows: usize, backend: &dyn Backend) -> Self {
        let (kv, context) = (backend.kv(), backend.info().context_length);
        // Of whole blocks, unless not even one is within the context.
        let longest = (context / kv.block_tokens * kv.block_tokens).max(context.min(kv.block_tokens));
        let (mut left, mut free) = (rows, 0..kv.blocks as u32);
        let mut tables = Vec::new();
        while left > 0 && !free.is_empty() {
            let blocks: Vec<u32> = free.by_ref().take(left.min(longest).div_ceil(kv.block_tokens)).collect();
            let tokens = left.min(longest).min(blocks.len() * kv.block_tokens);
            left -= tokens;
            tables.push((tokens, blocks));
        }
        Self { tokens: vec![0; longest], tables }
    }

    fn chunks(&self) -> Vec<Chunk<'_>> {
        self.tables
            .iter()
            .map(|(len, blocks)| Chunk {
                tokens: &self.tokens[..*len],
                start: 0,
                blocks,
                sample: Some(&Sampling::GREEDY),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{KvGeometry, ModelInfo, check_chunks};

    /// Notes the lengths of what it is asked for, and refuses what breaks a rule.
    struct Noted {
        info: ModelInfo,
        kv: KvGeometry,
        forwards: Vec<Vec<(usize, usize)>>,
    }

    impl Noted {
        fn warmed_up(context_length: usize, blocks: usize) -> Vec<Vec<(usize, usize)>> {
            let text = String::new;
            let info = ModelInfo {
                name: text(),
                architecture: text(),
                dtype: text(),
                backend: "cuda",
                tokenizer_hash: text(),
                device: text(),
                vocab_size: 1,
                context_length,
                eos_ids: vec![],
                weight_bytes: 0,
                threads: 1,
            };
            let kv = KvGeometry { block_tokens: 16, blocks, block_bytes: 0 };
            let mut backend = Self { info, kv, forwards: Vec::new() };
            warm_up(&mut backend).unwrap();
            backend.forwards
        }
    }

    impl Backend for Noted {
        fn info(&self) -> &ModelInfo {
            &self.info
        }

        fn kv(&self) -> KvGeometry {
            self.kv
        }

        fn forward(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, BackendError> {
            check_chunks(chunks, &self.info, self.kv)?;
            let mut blocks: Vec<u32> = chunks.iter().flat_map(|chunk| chunk.blocks).copied().collect();
            blocks.sort_unstable();
            blocks.dedup();
            assert_eq!(
                blocks.len(),
                chunks.iter().map(|chunk| chunk.blocks.len()).sum::<usize>(),
                "a block for each"
            );
            self.forwards.push(chunks.iter().map(|chunk| (chunk.start, chunk.tokens.len())).collect());
            Ok(vec![None; chunks.len()])
        }

        fn warm_up_rows(&self) -> &[usize] {
            &[40, 100]
        }

        fn copy_block(&mut self, _from: u32, _to: u32) {}
    }

    #[test]
    fn a_short_prompt_the_sizes_that_the_backend_names_and_a_row_that_decodes_run_once() {
        let forwards = Noted::warmed_up(1000, 100);
        assert_eq!(forwards, [vec![(0, 15)], vec![(0, 40)], vec![(0, 100)], vec![(15, 1)]]);
    }

    #[test]
    fn what_is_beyond_the_context_runs_as_several_prompts() {
        let forwards = Noted::warmed_up(50, 100);
        assert_eq!(forwards[1..3], [vec![(0, 40)], vec![(0, 48), (0, 48), (0, 4)]]);
    }

    #[test]
    fn what_is_beyond_the_pool_does_not_run() {
        assert_eq!(Noted::warmed_up(1000, 3)[1..3], [vec![(0, 40)], vec![(0, 48)]]);
        assert_eq!(Noted::warmed_up(1, 1), [vec![(0, 1)], vec![(0, 1)], vec![(0, 1)]]);
    }
}
