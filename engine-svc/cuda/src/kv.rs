//! The KV pool on the device, host's side; where an element lies is said in `kernels/kv.h`.

use crate::arguments::{DevicePtr, Kv};

/// Tokens in one block.
pub const BLOCK_TOKENS: usize = 16;

/// Bytes of a stored number: bf16 or f16.
pub const NUMBER_BYTES: usize = 2;

/// The shape of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayout {
    /// Layers.
    pub layers: usize,
    /// Key/value heads per layer.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
}

impl KvLayout {
    /// Elements of one layer's part of a block.
    pub fn layer_elements(&self) -> usize {
        2 * self.kv_heads * BLOCK_TOKENS * self.head_dim
    }

    /// Elements from a block to the next: all layers in one run.
    pub fn block_elements(&self) -> usize {
        self.layers * self.layer_elements()
    }

    /// Bytes of one block over all layers: what a block costs.
    pub fn block_bytes(&self) -> usize {
        self.block_elements() * NUMBER_BYTES
    }

    /// What kernels take of a layer of the pool at `pool`.
    pub fn layer(&self, pool: DevicePtr<u16>, layer: usize) -> Kv {
        Kv {
            layer: pool.offset(layer * self.layer_elements()),
            block_stride: self.block_elements() as i64,
            kv_heads: self.kv_heads as i32,
            reserved: 0,
        }
    }

    /// Softmax scale in base 2.
    pub fn scale_log2(&self) -> f32 {
        (std::f64::consts::LOG2_E / (self.head_dim as f64).sqrt()) as f32
    }

    /// Index of the first key element of a token in its block's run.
    pub fn key_index(&self, layer: usize, kv_head: usize, place: usize) -> usize {
        layer * self.layer_elements() + (kv_head * BLOCK_TOKENS + place) * self.head_dim
    }

    /// Index of the first value element of a token in its block's run.
    pub fn value_index(&self, layer: usize, kv_head: usize, place: usize) -> usize {
        self.key_index(layer, kv_head, place) + self.layer_elements() / 2
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_element_of_a_block_belongs_to_one_place() {
        let layout = KvLayout { layers: 3, kv_heads: 2, head_dim: 8 };
        let mut seen = BTreeSet::new();
        for layer in 0..3 {
            for head in 0..2 {
                for place in 0..BLOCK_TOKENS {
                    for start in
                        [layout.key_index(layer, head, place), layout.value_index(layer, head, place)]
                    {
                        seen.extend(start..start + 8);
                    }
                }
            }
        }
        assert!(seen.iter().copied().eq(0..layout.block_elements()));
        assert_eq!(layout.block_bytes(), 3 * 2 * 2 * 16 * 8 * 2);
    }
}
