//! What the kernel tests share: random data, pools of every kind, comparison with a reference.
#![allow(dead_code, reason = "each test file uses a part")]

use firstlight_kernels::isa::Isa;
use firstlight_kernels::pool::Pool;
use half::bf16;

/// Deterministic uniform numbers in [-1, 1).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((self.next() + 1.0) / 2.0 * bound as f32) as usize % bound
    }

    pub fn vec(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

/// One pool for each instruction set of this machine.
pub fn pools(threads: usize) -> Vec<Pool> {
    Isa::ALL
        .iter()
        .copied()
        .filter(|isa| isa.is_available())
        .map(|isa| Pool::with_isa(threads, isa))
        .collect()
}

/// Rounds as bf16 storage does.
pub fn as_bf16(values: &[f32]) -> Vec<f32> {
    values.iter().map(|x| bf16::from_f32(*x).to_f32()).collect()
}

/// Fails unless both have exactly the same bits.
#[track_caller]
pub fn assert_same_bits(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.to_bits(), want.to_bits(), "element {index}: {got:e}, should be {want:e}");
    }
}

/// Fails unless each element is within `tolerance` times `scale` of the reference.
#[track_caller]
pub fn assert_close(got: &[f32], want: &[f64], tolerance: f64, scale: f64) {
    assert_eq!(got.len(), want.len());
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= tolerance * scale, "element {index}: {got}, should be {want}, error {error:e}");
    }
}
