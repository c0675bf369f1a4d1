//! Float weights: panels of 48 outputs, and within a panel `[K / group][48][group]`.
//!
//! A kernel then streams one panel from front to back. `group` neighbouring k lie in one lane. k is padded
//! with zeros, bf16 to whole tiles of AMX (a multiple of 32), N to a multiple of 48.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(super) mod operand;
mod portable;

use half::bf16;

use super::operand::Operand;
use super::strips::StripsKernel;
use super::tile::{Kernel, PANEL, TileKernel};
use crate::buffer::Buffer;
use crate::disjoint::SharedMut;
use crate::isa::Isa;
use crate::pool::Pool;

/// A weight as stored in a panel.
pub(super) trait Weight: bytemuck::Pod + Send + Sync {
    /// Neighbouring k kept together.
    const GROUP: usize;
    /// What k is padded to a multiple of, itself a multiple of the group.
    const PAD: usize;
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
    /// The kernel for such weights.
    fn kernel(isa: Isa) -> Kernel;
}

impl Weight for f32 {
    const GROUP: usize = 1;
    const PAD: usize = 1;
    fn from_f32(value: f32) -> f32 {
        value
    }
    fn to_f32(self) -> f32 {
        self
    }
    fn kernel(isa: Isa) -> Kernel {
        let (max_rows, compute): (_, TileKernel) = match isa {
            Isa::Portable => (1, portable::f32_tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (4, avx2::f32_tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => (8, avx512::f32_tile),
        };
        Kernel { max_rows, operand: Operand::F32, compute, strips: None }
    }
}

impl Weight for bf16 {
    const GROUP: usize = 2;
    const PAD: usize = 32;
    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
    fn kernel(isa: Isa) -> Kernel {
        let (max_rows, operand, compute): (_, _, TileKernel) = match isa {
            Isa::Portable => (1, Operand::F32, portable::bf16_tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => (4, Operand::F32, avx2::bf16_tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => (8, Operand::F32, avx512::bf16_widen_tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => (8, Operand::Bf16, avx512::bf16_dot_tile),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => (amx::MAX_ROWS, Operand::Bf16Tiles, amx::bf16_tile),
        };
        let strips: Option<StripsKernel> = match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => Some(amx::bf16_strips),
            _ => None,
        };
        Kernel { max_rows, operand, compute, strips }
    }
}

/// A packed matrix `[n, k]`.
#[derive(Debug)]
pub(super) struct Panels<T: Weight> {
    k: usize,
    data: Buffer<T>,
}

impl<T: Weight> Panels<T> {
    /// Packs the rows that `fill` writes, panels shared out over the pool.
    pub(super) fn pack<F>(pool: &Pool, n: usize, k: usize, fill: F) -> Panels<T>
    where
        F: Fn(usize, &mut [f32]) + Sync,
    {
        let panel_len = PANEL * k.next_multiple_of(T::PAD);
        let mut data = Buffer::<T>::zeroed(n.div_ceil(PANEL) * panel_len);
        let out = SharedMut::new(&mut data);
        pool.share(n.div_ceil(PANEL), |panel| {
            let mut rows = vec![0.0; PANEL * k];
            let first = panel * PANEL;
            let count = PANEL.min(n - first);
            for (row, out) in rows.chunks_exact_mut(k).take(count).enumerate() {
                fill(first + row, out);
            }
            // SAFETY: each panel is handed to one thread only.
            let out = unsafe { out.slice(panel * panel_len, panel_len) };
            interleave(&rows[..count * k], k, out);
        });
        Panels { k, data }
    }

    /// Where the panels start, and the bytes of each.
    pub(super) fn raw(&self) -> (*const u8, usize) {
        (self.data.as_ptr().cast(), PANEL * self.k.next_multiple_of(T::PAD) * size_of::<T>())
    }

    /// Bytes of all panels.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.data[..])
    }

    /// Reads back row `index`.
    pub(super) fn unpack_row(&self, index: usize, out: &mut [f32]) {
        let panel_len = PANEL * self.k.next_multiple_of(T::PAD);
        let panel = &self.data[index / PANEL * panel_len..][..panel_len];
        let column = index % PANEL * T::GROUP;
        for (group, out) in panel.chunks_exact(PANEL * T::GROUP).zip(out.chunks_mut(T::GROUP)) {
            for (value, out) in group[column..].iter().zip(out) {
                *out = value.to_f32();
            }
        }
    }
}

/// Writes up to 48 rows of `k` floats into a zeroed panel.
fn interleave<T: Weight>(rows: &[f32], k: usize, panel: &mut [T]) {
    for (group, out) in panel.chunks_exact_mut(PANEL * T::GROUP).take(k.div_ceil(T::GROUP)).enumerate() {
        let from = group * T::GROUP;
        let len = T::GROUP.min(k - from);
        for (row, out) in rows.chunks_exact(k).zip(out.chunks_exact_mut(T::GROUP)) {
            for (value, out) in row[from..from + len].iter().zip(out) {
                *out = T::from_f32(*value);
            }
        }
    }
}
