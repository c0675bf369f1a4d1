//! Rotary position embedding (Su et al. 2021), over tables made once for the whole context.

use crate::buffer::Buffer;
use crate::isa::{Isa, vectorised};

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairing {
    /// Element i with i + d/2, as in Hugging Face checkpoints ("rotate half", "NeoX").
    Halves,
    /// Element 2i with 2i + 1, as in GGUF files of the llama architecture.
    Interleaved,
}

/// Precomputed angles of every position.
#[derive(Debug)]
pub struct Rope {
    pairing: RopePairing,
    pairs: usize,
    positions: usize,
    /// Per position, `pairs` cosines and then `pairs` sines.
    table: Buffer<f32>,
}

/// The usual inverse frequencies, `base^(-2i / rotary_dim)`.
pub fn inverse_frequencies(base: f64, rotary_dim: usize) -> Vec<f64> {
    (0..rotary_dim / 2).map(|i| base.powf(-2.0 * i as f64 / rotary_dim as f64)).collect()
}

impl Rope {
    /// Tables for positions `0..context`. There is one inverse frequency per rotated pair; scaled
    /// variants (Llama 3, YaRN) differ only in these. Pairs beyond them are left as they are.
    pub fn new(pairing: RopePairing, inverse_frequencies: &[f64], context: usize) -> Rope {
        let pairs = inverse_frequencies.len();
        let mut table = Buffer::zeroed(context * 2 * pairs);
        for (position, row) in table.chunks_exact_mut((2 * pairs).max(1)).enumerate() {
            let (cosines, sines) = row.split_at_mut(pairs);
            for (i, frequency) in inverse_frequencies.iter().enumerate() {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                cosines[i] = cosine as f32;
                sines[i] = sine as f32;
            }
        }
        Rope { pairing, pairs, positions: context, table }
    }

    /// How many positions the tables cover.
    pub fn context(&self) -> usize {
        self.positions
    }

    /// Rotates a head in place by the angle of a position.
    ///
    /// # Panics
    /// If the head is narrower than the rotated pairs, or the position outside the tables.
    pub(crate) fn rotate(&self, isa: Isa, head: &mut [f32], position: usize) {
        assert!(2 * self.pairs <= head.len(), "{} rotated pairs in a head of {}", self.pairs, head.len());
        assert!(position < self.positions, "position {position} of {}", self.positions);
        let angles = &self.table[position * 2 * self.pairs..][..2 * self.pairs];
        let (cosines, sines) = angles.split_at(self.pairs);
        let head = &mut head[..2 * self.pairs];
        match self.pairing {
            RopePairing::Halves => rotate_halves(isa, head, cosines, sines),
            RopePairing::Interleaved => rotate_interleaved(isa, head, cosines, sines),
        }
    }
}

vectorised! {
    fn rotate_halves(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
        let (low, high) = head.split_at_mut(cosines.len());
        for (((a, b), cosine), sine) in low.iter_mut().zip(high).zip(cosines).zip(sines) {
            (*a, *b) = (*a * cosine - *b * sine, *b * cosine + *a * sine);
        }
    }
}

vectorised! {
    fn rotate_interleaved(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
        for ((pair, cosine), sine) in head.chunks_exact_mut(2).zip(cosines).zip(sines) {
            let (a, b) = (pair[0], pair[1]);
            pair[0] = a * cosine - b * sine;
            pair[1] = b * cosine + a * sine;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_pairs_are_rotated_by_the_angle_of_the_position() {
        for (pairs, spare) in [(1, 0), (4, 2), (16, 0), (20, 1), (32, 0), (39, 2)] {
            let frequencies = inverse_frequencies(10_000.0, 2 * pairs);
            for pairing in [RopePairing::Halves, RopePairing::Interleaved] {
                let rope = Rope::new(pairing, &frequencies, 2000);
                for position in [0, 1, 77, 1999] {
                    let x: Vec<f32> = (0..2 * (pairs + spare))
                        .map(|i| ((i * 37 + position) % 101) as f32 / 50.0 - 1.0)
                        .collect();
                    let mut want: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
                    for (i, frequency) in frequencies.iter().enumerate() {
                        let (a, b) = match pairing {
                            RopePairing::Halves => (i, i + pairs),
                            RopePairing::Interleaved => (2 * i, 2 * i + 1),
                        };
                        let (sin, cos) = (position as f64 * frequency).sin_cos();
                        (want[a], want[b]) = (want[a] * cos - want[b] * sin, want[b] * cos + want[a] * sin);
                    }
                    for isa in Isa::ALL.iter().copied().filter(|isa| isa.is_available()) {
                        let mut got = x.clone();
                        rope.rotate(isa, &mut got, position);
                        for (got, want) in got.iter().zip(&want) {
                            assert!(
                                (f64::from(*got) - want).abs() < 1e-6,
                                "{isa} {pairing:?}: {got}, should be {want}"
                            );
                        }
                    }
                }
            }
        }
    }
}
