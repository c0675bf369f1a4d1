//! Random numbers, the 16-bit formats, and what counts as equal.

use firstlight_cuda::source::Number;

/// SplitMix64, for inputs.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + (self.bits() % (high - low + 1) as u64) as usize
    }

    /// One of them.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.between(0, values.len() - 1)]
    }

    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Mean 0, variance 1, near enough to normal.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    pub fn normals(&mut self, number: Number, count: usize) -> Vec<u16> {
        (0..count).map(|_| narrow(number, self.normal())).collect()
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.between(0, i));
        }
    }
}

pub fn narrow(number: Number, value: f64) -> u16 {
    match number {
        Number::Bf16 => half::bf16::from_f64(value).to_bits(),
        Number::F16 => half::f16::from_f64(value).to_bits(),
    }
}

pub fn widen(number: Number, bits: u16) -> f64 {
    match number {
        Number::Bf16 => half::bf16::from_bits(bits).to_f64(),
        Number::F16 => half::f16::from_bits(bits).to_f64(),
    }
}

/// Largest relative error of rounding to the format.
pub fn roundoff(number: Number) -> f64 {
    match number {
        Number::Bf16 => 1.0 / 256.0,
        Number::F16 => 1.0 / 2048.0,
    }
}

/// The largest error seen so far, as a part of what was allowed.
#[derive(Default)]
pub struct Worst(f64);

impl Worst {
    /// Compares `got` with what is right, give or take `allowed`.
    pub fn compare(
        &mut self,
        got: f64,
        want: f64,
        allowed: f64,
        place: impl Fn() -> String,
    ) -> Result<(), String> {
        let part = (got - want).abs() / allowed;
        // A NaN is not below anything.
        if part <= 1.0 {
            self.0 = self.0.max(part);
            return Ok(());
        }
        Err(format!("{}: {got} instead of {want}, {part:.3} times the error allowed", place()))
    }

    pub fn part(self) -> f64 {
        self.0
    }
}
