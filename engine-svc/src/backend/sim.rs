//! A backend without a model: forwards take the time that a cost model says, tokens are a function of what came
//! before. Carries load tests of everything around the model.

use std::time::Duration;

use firstlight_proto::clock::{Clock, Stamp};
use firstlight_sim::cost::{CostModel, Load};

use super::{Backend, BackendError, Chunk, KvGeometry, ModelInfo, check_chunks};
use crate::sample::Sampling;

/// How far ahead of the end of a forward to stop sleeping and spin: a sleeping thread wakes late.
const SPIN: Duration = Duration::from_micros(100);

/// What the sim pretends to be.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Name of the model, as told to schedulers.
    pub model_name: String,
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Longest prompt plus output.
    pub context_length: usize,
    /// Its end-of-sequence id.
    pub eos_id: u32,
    /// One token in so many is EOS, on average; 0: none ever is.
    pub eos_one_in: u64,
    /// Pool of KV blocks.
    pub kv: KvGeometry,
    /// How long forwards take.
    pub cost: CostModel,
}

/// The backend.
#[derive(Debug)]
pub struct SimBackend {
    info: ModelInfo,
    config: SimConfig,
    clock: Clock,
}

impl SimBackend {
    /// A sim as configured.
    pub fn new(config: SimConfig) -> Self {
        let info = ModelInfo {
            name: config.model_name.clone(),
            architecture: "sim".into(),
            dtype: "none".into(),
            device: "sim".into(),
            backend: "sim",
            tokenizer_hash: String::new(),
            vocab_size: config.vocab_size,
            context_length: config.context_length,
            eos_ids: vec![config.eos_id],
            weight_bytes: 0,
            threads: 1,
        };
        Self { info, config, clock: Clock::new() }
    }

    /// The token after `last` at `position`, for the sampling's seed (greedy has none): whoever resumes with the
    /// same tokens goes on with the same ones.
    fn token(&self, sampling: &Sampling, position: usize, last: u32) -> u32 {
        let seed = if sampling.is_greedy() { 0 } else { sampling.seed() };
        let noise = mix(seed ^ mix(position as u64 ^ mix(u64::from(last))));
        let (vocab, eos) = (self.config.vocab_size as u64, u64::from(self.config.eos_id));
        if self.config.eos_one_in > 0 && noise.is_multiple_of(self.config.eos_one_in) {
            return eos as u32;
        }
        // Any token but EOS: the one after it stands in for it.
        let token = mix(noise) % vocab;
        (if token == eos { (token + 1) % vocab } else { token }) as u32
    }
}

impl Backend for SimBackend {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn kv(&self) -> KvGeometry {
        self.config.kv
    }

    fn forward(&mut self, chunks: &[Chunk<'_>]) -> Result<Vec<Option<u32>>, BackendError> {
        let start = self.clock.now();
        check_chunks(chunks, &self.info, self.config.kv)?;
        let mut load = Load::default();
        for chunk in chunks {
            // A prompt of one token costs what a decode row does.
            load.add(chunk.start, chunk.tokens.len(), chunk.start == 0 || chunk.tokens.len() > 1);
        }
        let sampled = chunks
            .iter()
            .map(|chunk| {
                let last = *chunk.tokens.last()?;
                chunk.sample.map(|sampling| self.token(sampling, chunk.end(), last))
            })
            .collect();
        self.sleep_until(start + self.config.cost.forward(load));
        Ok(sampled)
    }

    fn decode_bucket(&self, rows: usize) -> usize {
        self.config.cost.bucket(rows)
    }

    fn copy_block(&mut self, from: u32, to: u32) {
        assert!((from.max(to) as usize) < self.config.kv.blocks, "block {from} or {to} outside the pool");
    }
}

impl SimBackend {
    fn sleep_until(&self, end: Stamp) {
        let left = self.clock.until(end);
        if left > SPIN {
            std::thread::sleep(left - SPIN);
        }
        while self.clock.now() < end {
            std::hint::spin_loop();
        }
    }
}

/// A bijection that scatters neighbouring values (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sim(eos_one_in: u64) -> SimBackend {
        SimBackend::new(SimConfig {
            model_name: "sim".into(),
            vocab_size: 50,
            context_length: 1000,
            eos_id: 2,
            eos_one_in,
            kv: KvGeometry { block_tokens: 16, blocks: 64, block_bytes: 0 },
            cost: CostModel::free(),
        })
    }

    fn forward(sim: &mut SimBackend, tokens: &[u32], start: usize, sampling: &Sampling) -> u32 {
        let blocks: Vec<u32> = (0..64).collect();
        let chunk = Chunk { tokens, start, blocks: &blocks, sample: Some(sampling) };
        sim.forward(&[chunk]).unwrap()[0].unwrap()
    }

    fn generate(sim: &mut SimBackend, prompt: &[u32], n: usize, sampling: &Sampling) -> Vec<u32> {
        let mut tokens = prompt.to_vec();
        let next = forward(sim, &tokens, 0, sampling);
        tokens.push(next);
        while tokens.len() < prompt.len() + n {
            let last = tokens.len() - 1;
            let next = forward(sim, &tokens[last..], last, sampling);
            tokens.push(next);
        }
        tokens.split_off(prompt.len())
    }

    #[test]
    fn a_resumed_sequence_says_the_same() {
        let mut sim = sim(0);
        let sampling = Sampling::new(1.0, 0, 1.0, 0.0, 42).unwrap();
        let whole = generate(&mut sim, &[1, 2, 3], 20, &sampling);
        let resumed: Vec<u32> = [1, 2, 3].into_iter().chain(whole[..7].iter().copied()).collect();
        assert_eq!(generate(&mut sim, &resumed, 13, &sampling), whole[7..]);
    }

    #[test]
    fn eos_comes_only_when_it_is_configured() {
        let never = generate(&mut sim(0), &[1], 800, &Sampling::GREEDY);
        assert!(!never.contains(&2) && never.iter().all(|&token| token < 50));
        assert!(generate(&mut sim(10), &[1], 800, &Sampling::GREEDY).contains(&2));
    }

    #[test]
    fn a_chunk_that_breaks_a_rule_is_named() {
        let chunk = Chunk { tokens: &[99], start: 0, blocks: &[0], sample: None };
        assert!(matches!(sim(0).forward(&[chunk]), Err(BackendError::Chunk { index: 0, .. })));
    }
}
