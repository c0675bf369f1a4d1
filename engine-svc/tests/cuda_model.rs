//! The CUDA backend as a whole, kernels and graphs emulated: loading, the operations in their order, the rows of
//! forwards, graphs, tokens that come a forward later. What it says is held against the CPU's logits in 32 bits.

mod common;

use std::collections::BTreeSet;

use common::{OPTIONS, Sequence, run};
use engine_svc::backend::cpu::CpuBackend;
use engine_svc::backend::cuda::CudaBackend;
use engine_svc::backend::cuda::load::{CudaLoadError, load};
use engine_svc::backend::cuda::loaded::LoadedModel;
use engine_svc::backend::options::CudaOptions;
use engine_svc::backend::{Backend, Chunk};
use engine_svc::sample::Sampling;
use engine_svc::weights::config::{Mlp, ModelConfig, Norm, Positions};
use engine_svc::weights::{LoadError, Matrix, Weight, WeightSource};
use firstlight_cuda::source::Number;
use firstlight_cuda_emulate::board::{EmulatedBoard, Ran};
use firstlight_kernels::rope::{RopePairing, inverse_frequencies};
use firstlight_sim::planner::ForwardKind;

const VOCABULARY: usize = 211;
const STEPS: usize = 6;
const MEMORY: u64 = 1 << 30;
/// More sequences than the largest graph has rows, so that some decode in a forward of their own.
const PROMPTS: [usize; 6] = [1, 15, 16, 17, 40, 270];

const CUDA: CudaOptions = CudaOptions {
    number: Number::Bf16,
    kv_blocks: Some(60),
    kv_memory_fraction: 0.9,
    context_length: None,
    decode_rows: 4,
    graphs: true,
    batch_invariant: false,
    nvtx: false,
};

/// A small model whose weights are large enough to have opinions.
struct Tiny(ModelConfig);

impl Tiny {
    fn llama() -> Self {
        let inverse_frequencies = inverse_frequencies(10_000.0, 64);
        Self(ModelConfig {
            name: "tiny-llama".to_owned(),
            architecture: "llama".to_owned(),
            layers: 2,
            hidden: 96,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            mlp_width: 136,
            vocab_size: VOCABULARY,
            context_length: 400,
            norm: Norm::Rms,
            norm_eps: 1e-5,
            positions: Positions::Rotary { pairing: RopePairing::Interleaved, inverse_frequencies },
            mlp: Mlp::GatedSilu,
            query_key_norm: false,
            tied_output: true,
            eos_ids: vec![2],
        })
    }

    /// Normalized heads, neighbours paired half a head apart, one group of three.
    fn qwen3() -> Self {
        let inverse_frequencies = inverse_frequencies(10_000.0, 80);
        let positions = Positions::Rotary { pairing: RopePairing::Halves, inverse_frequencies };
        let (heads, kv_heads, head_dim, query_key_norm, tied_output) = (3, 1, 80, true, false);
        let architecture = "qwen3".to_owned();
        let model = Self::llama().0;
        Self(ModelConfig {
            architecture,
            heads,
            kv_heads,
            head_dim,
            positions,
            query_key_norm,
            tied_output,
            ..model
        })
    }

    fn gpt2() -> Self {
        let (heads, kv_heads, hidden, mlp_width) = (2, 2, 128, 256);
        let architecture = "gpt2".to_owned();
        let (norm, positions, mlp) = (Norm::Layer, Positions::Learned, Mlp::GeluTanh);
        let model = Self::llama().0;
        Self(ModelConfig { architecture, heads, kv_heads, hidden, mlp_width, norm, positions, mlp, ..model })
    }

    fn all() -> [Self; 3] {
        [Self::llama(), Self::qwen3(), Self::gpt2()]
    }
}

/// Between −1 and 1, a number of its own for every place of every weight.
fn noise(weight: Weight, place: usize) -> f32 {
    let name =
        format!("{weight:?}").bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(131) + u64::from(byte));
    let mut x = name ^ (place as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((x ^ (x >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

impl WeightSource for Tiny {
    fn config(&self) -> &ModelConfig {
        &self.0
    }

    fn matrix(&self, weight: Weight) -> Result<Matrix<'_>, LoadError> {
        let (outputs, inputs) = self.0.shape(weight);
        let spread = match weight {
            Weight::TokenEmbedding | Weight::PositionEmbedding => 1.0,
            _ => 1.7 / (inputs as f32).sqrt(),
        };
        Ok(Matrix::new((outputs, inputs), move |index, row| {
            for (column, value) in row.iter_mut().enumerate() {
                *value = spread * noise(weight, index * inputs + column);
            }
        }))
    }

    fn bias(&self, weight: Weight) -> Result<Option<Vec<f32>>, LoadError> {
        let biased = self.0.norm == Norm::Layer;
        let bias = |len| (0..len).map(|place| 0.3 * noise(weight, 1_000_000 + place)).collect();
        Ok(biased.then(|| bias(self.0.shape(weight).0)))
    }

    fn norm(&self, weight: Weight) -> Result<Vec<f32>, LoadError> {
        Ok((0..self.0.shape(weight).0).map(|place| 1.0 + 0.3 * noise(weight, place)).collect())
    }

    fn vocabulary(&self) -> Result<Option<Vec<String>>, LoadError> {
        Ok(None)
    }

    fn origin(&self) -> String {
        self.0.architecture.clone()
    }
}

fn on_the_board(model: &Tiny, options: &CudaOptions) -> CudaBackend<LoadedModel<EmulatedBoard>> {
    let board = EmulatedBoard::new(options.number, model.0.head_dim, MEMORY, 1);
    load(board, model, options).unwrap_or_else(|error| panic!("{}: {error}", model.origin()))
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len).map(|i| ((i * 7919 + len * 131) % VOCABULARY) as u32).collect()
}

/// Sequences of all lengths, their blocks mixed up.
fn sequences(sampling: Sampling) -> Vec<Sequence> {
    let mut blocks = (0..60_u32).map(|index| index * 37 % 60);
    let sequence = |&len: &usize| {
        let blocks: Vec<u32> = blocks.by_ref().take((len + STEPS).div_ceil(16)).collect();
        Sequence { sampling, ..Sequence::new(&prompt(len), blocks) }
    };
    PROMPTS.iter().map(sequence).collect()
}

/// All sequences together, prompts in chunks that end in the middle of blocks.
fn continued(backend: &mut dyn Backend, sampling: Sampling) -> Vec<Vec<u32>> {
    let mut sequences = sequences(sampling);
    run(backend, &mut sequences, 101, STEPS);
    sequences.iter().map(|sequence| sequence.output().to_vec()).collect()
}

fn sampled() -> Sampling {
    Sampling::new(1.0, 0, 1.0, 0.0, 5).unwrap()
}

#[test]
fn a_model_on_the_board_says_what_the_cpu_says() {
    for model in Tiny::all() {
        let mut cpu = CpuBackend::load(&model, &OPTIONS).unwrap();
        for number in Number::ALL {
            let said =
                continued(&mut on_the_board(&model, &CudaOptions { number, ..CUDA }), Sampling::GREEDY);
            let mut clear = 0;
            for (&len, output) in PROMPTS.iter().zip(&said) {
                let tokens: Vec<u32> = prompt(len).into_iter().chain(output.iter().copied()).collect();
                let blocks: Vec<u32> = (0..60).collect();
                let chunk = Chunk { tokens: &tokens, start: 0, blocks: &blocks, sample: None };
                let logits = cpu.logits(chunk).unwrap();
                for (step, &token) in output.iter().enumerate() {
                    let row = &logits[(len - 1 + step) * VOCABULARY..][..VOCABULARY];
                    let mut ordered = row.to_vec();
                    ordered.sort_by(|a, b| b.total_cmp(a));
                    // What 8 bits of mantissa, or 11, leave uncertain after a few layers.
                    let allowed = if number == Number::Bf16 { 0.25 } else { 0.04 };
                    let behind = ordered[0] - row[token as usize];
                    let place = format!("{} {number:?}, prompt {len}, step {step}", model.origin());
                    assert!(behind <= allowed, "{place}: {behind} behind the best");
                    clear += usize::from(ordered[0] - ordered[1] > allowed);
                }
            }
            let all = PROMPTS.len() * STEPS;
            assert!(3 * clear > all, "{} {number:?}: only {clear} of {all} were clear", model.origin());
        }
    }
}

#[test]
fn graphs_change_no_token() {
    for model in Tiny::all() {
        let eager = continued(&mut on_the_board(&model, &CudaOptions { graphs: false, ..CUDA }), sampled());
        let graphs = continued(&mut on_the_board(&model, &CUDA), sampled());
        assert_eq!(graphs, eager, "{}", model.origin());
    }
}

#[test]
fn a_request_says_the_same_alone_and_among_neighbours() {
    let model = Tiny::llama();
    let options = CudaOptions { batch_invariant: true, ..CUDA };
    let together = continued(&mut on_the_board(&model, &options), sampled());
    let mut backend = on_the_board(&model, &options);
    for (&len, together) in PROMPTS.iter().zip(&together) {
        let alone = Sequence { sampling: sampled(), ..Sequence::new(&prompt(len), 0..30) };
        let mut alone = [alone];
        run(&mut backend, &mut alone, 101, STEPS);
        assert_eq!(alone[0].output(), together, "prompt {len}");
    }
}

#[test]
fn batch_invariance_is_multiplications_of_one_shape() {
    let rows_of = |batch_invariant| {
        let board = EmulatedBoard::new(Number::Bf16, 64, MEMORY, 1);
        let ran = board.ran();
        let options = CudaOptions { batch_invariant, ..CUDA };
        continued(&mut load(board, &Tiny::llama(), &options).unwrap(), Sampling::GREEDY);
        let ran = ran.lock().unwrap();
        ran.multiplications.keys().map(|&(rows, _)| rows).collect::<BTreeSet<_>>()
    };
    assert_eq!(rows_of(true).into_iter().collect::<Vec<_>>(), [64]);
    assert!(rows_of(false).len() > 4, "buckets and prompts have shapes of their own");
}

#[test]
fn a_bias_is_never_added_to_a_single_row() {
    let board = EmulatedBoard::new(Number::Bf16, 64, MEMORY, 1);
    let ran = board.ran();
    let mut backend = load(board, &Tiny::gpt2(), &CUDA).unwrap();
    run(&mut backend, &mut [Sequence::new(&prompt(1), [3])], usize::MAX, STEPS);
    let multiplications = ran.lock().unwrap().multiplications.clone();
    assert!(multiplications.contains_key(&(1, false)), "the output has no bias: {multiplications:?}");
    assert!(multiplications.contains_key(&(2, true)), "{multiplications:?}");
    assert!(!multiplications.contains_key(&(1, true)), "{multiplications:?}");
}

/// What ran in a decode forward of one sequence behind a prompt of this length.
fn ran_in_a_decode_forward(model: &Tiny, prompt_tokens: usize) -> Ran {
    let board = EmulatedBoard::new(Number::Bf16, 64, MEMORY, 1);
    let ran = board.ran();
    let mut backend = load(board, model, &CUDA).unwrap();
    let mut sequence = [Sequence::new(&prompt(prompt_tokens), 0..20)];
    run(&mut backend, &mut sequence, usize::MAX, 1);
    *ran.lock().unwrap() = Ran::default();
    run(&mut backend, &mut sequence, usize::MAX, 2);
    ran.lock().unwrap().clone()
}

#[test]
fn a_decode_forward_of_gpt2_is_eight_pieces_of_work_a_layer() {
    let model = Tiny::gpt2();
    let ran = ran_in_a_decode_forward(&model, 20);
    let pieces = ran.kernels.values().sum::<usize>() + ran.multiplications.values().sum::<usize>();
    // Beside the layers: embedding, norm, logits, choice.
    assert_eq!(pieces, 8 * model.0.layers + 4, "{ran:?}");
    assert!(!ran.kernels.contains_key("gelu_tanh"), "it is part of the multiplication");
}

#[test]
fn keys_are_joined_only_where_a_context_is_longer_than_one_part() {
    let joins = |prompt_tokens| {
        ran_in_a_decode_forward(&Tiny::llama(), prompt_tokens).kernels.get("paged_decode_join").copied()
    };
    assert_eq!([joins(255), joins(256)], [None, Some(2)], "one a layer");
}

#[test]
fn a_copied_block_serves_like_the_original() {
    let model = Tiny::llama();
    let mut backend = on_the_board(&model, &CUDA);
    let mut original = [Sequence::new(&prompt(20), [3, 9])];
    run(&mut backend, &mut original, usize::MAX, 1);
    backend.copy_block(9, 5);
    let mut copy = [Sequence { blocks: vec![3, 5], ..original[0].clone() }];
    run(&mut backend, &mut original, usize::MAX, STEPS);
    run(&mut backend, &mut copy, usize::MAX, STEPS);
    assert_eq!(copy[0].output(), original[0].output());
}

#[test]
fn forwards_are_timed_by_the_device() {
    let mut backend = on_the_board(&Tiny::llama(), &CUDA);
    let mut sequence = [Sequence::new(&prompt(20), [3, 9])];
    run(&mut backend, &mut sequence, usize::MAX, 1);
    let [forward] = backend.device_forwards() else { panic!("{:?}", backend.device_forwards()) };
    assert!(forward.kind == ForwardKind::Prefill && forward.rows == 20 && forward.ns > 0, "{forward:?}");
}

#[test]
fn a_pool_that_does_not_fit_is_refused_with_the_arithmetic() {
    let board = EmulatedBoard::new(Number::Bf16, 64, MEMORY, 1);
    let options = CudaOptions { kv_blocks: Some(1 << 20), ..CUDA };
    let refused = load(board, &Tiny::llama(), &options).err().expect("it does not fit").to_string();
    for part in ["1.07 GB in all × 0.9 (--kv-memory-fraction)", "of weights", "for forwards and graphs"] {
        assert!(refused.contains(part), "{refused}");
    }
    let none_for_weights = EmulatedBoard::new(Number::Bf16, 64, 6_000_000, 1);
    let refused = load(none_for_weights, &Tiny::llama(), &CUDA).err().expect("it does not fit").to_string();
    assert!(refused.contains("out of memory") && refused.contains("were free by then"), "{refused}");
}

#[test]
fn a_model_that_the_kernels_are_not_made_for_is_refused() {
    let mut model = Tiny::llama();
    model.0.head_dim = 32;
    let board = EmulatedBoard::new(Number::Bf16, 64, MEMORY, 1);
    let refused = load(board, &model, &CUDA).err().expect("no kernels");
    assert!(
        matches!(refused, CudaLoadError::Unsupported { field: "head dimension", value: 32, .. }),
        "{refused}"
    );
}
