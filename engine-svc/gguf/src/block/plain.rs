//! Formats of one value per block.

use half::slice::HalfFloatSliceExt;

pub(super) fn f32(blocks: &[u8], values: &mut [f32]) {
    for (block, value) in blocks.as_chunks().0.iter().zip(values) {
        *value = f32::from_le_bytes(*block);
    }
}

pub(super) fn f16(blocks: &[u8], values: &mut [f32]) {
    // Converted through a small buffer: the slice conversion uses the machine's instructions.
    let mut halves = [half::f16::ZERO; 64];
    for (blocks, values) in blocks.as_chunks().0.chunks(64).zip(values.chunks_mut(64)) {
        for (half, block) in halves.iter_mut().zip(blocks) {
            *half = half::f16::from_le_bytes(*block);
        }
        halves[..values.len()].convert_to_f32_slice(values);
    }
}

pub(super) fn bf16(blocks: &[u8], values: &mut [f32]) {
    for (block, value) in blocks.as_chunks().0.iter().zip(values) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16);
    }
}
