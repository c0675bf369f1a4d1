//! Storing keys and values in the order of [`KvLayout`].

use half::bf16;

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::{BLOCK_TOKENS, KvLayout, KvSlot, MAX_HEAD_DIM};
use crate::disjoint::SharedMut;
use crate::isa::Isa;
use crate::pool::Pool;
use crate::prefetch;
use crate::rope::Rope;
use crate::rows::Rows;

/// How many rows later a row's place is fetched.
const ROWS_AHEAD: usize = 2;

/// How many rows later a row's elements are: parts of rows are too far apart for the processor to find by itself.
const SOURCES_AHEAD: usize = 8;

/// An element as stored.
pub(crate) trait KvElement: bytemuck::Pod + Send + Sync {
    /// Elements that one instruction multiplies.
    const GROUP: usize;

    fn from_f32(value: f32) -> Self;

    /// Stores the key of token `offset` in the keys of its block and head.
    fn put_key(_isa: Isa, keys: &mut [Self], offset: usize, from: &[f32]) {
        put_key(keys, offset, from);
    }

    /// Stores the value of token `offset` in the values of its block and head.
    fn put_value(_isa: Isa, values: &mut [Self], offset: usize, from: &[f32]) {
        put_value(values, offset, from);
    }
}

impl KvElement for f32 {
    const GROUP: usize = 1;

    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl KvElement for bf16 {
    const GROUP: usize = 2;

    #[inline(always)]
    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }

    #[cfg(target_arch = "x86_64")]
    fn put_key(isa: Isa, keys: &mut [bf16], offset: usize, from: &[f32]) {
        if isa >= Isa::Avx512Bf16 {
            // SAFETY: an `Isa` in a pool was checked to be available.
            return unsafe { avx512::put_key(keys, offset, from) };
        }
        put_key(keys, offset, from);
    }

    #[cfg(target_arch = "x86_64")]
    fn put_value(isa: Isa, values: &mut [bf16], offset: usize, from: &[f32]) {
        if isa >= Isa::Avx512Bf16 {
            // SAFETY: as above.
            return unsafe { avx512::put_value(values, offset, from) };
        }
        put_value(values, offset, from);
    }
}

fn put_key<T: KvElement>(keys: &mut [T], offset: usize, from: &[f32]) {
    let groups = keys.chunks_exact_mut(BLOCK_TOKENS * T::GROUP).zip(from.chunks_exact(T::GROUP));
    for (to, from) in groups {
        for (to, from) in to[offset * T::GROUP..].iter_mut().zip(from) {
            *to = T::from_f32(*from);
        }
    }
}

fn put_value<T: KvElement>(values: &mut [T], offset: usize, from: &[f32]) {
    let group = values.len() / BLOCK_TOKENS * T::GROUP;
    let to = &mut values[offset / T::GROUP * group..][..group];
    for (to, from) in to.chunks_exact_mut(T::GROUP).zip(from) {
        to[offset % T::GROUP] = T::from_f32(*from);
    }
}

/// Rows to store in one layer.
pub(super) struct Appended<'a> {
    pub(super) layout: KvLayout,
    pub(super) layer: usize,
    pub(super) slots: &'a [KvSlot],
    pub(super) keys: Rows<'a>,
    pub(super) rotation: Option<(&'a Rope, &'a [u32])>,
    pub(super) values: Rows<'a>,
}

impl Appended<'_> {
    pub(super) fn store<T: KvElement>(&self, pool: &Pool, data: &mut [T]) {
        let KvLayout { kv_heads, head_dim, .. } = self.layout;
        let (isa, data) = (pool.isa(), SharedMut::new(data));
        // Parts of a head, never parts of its tokens: two rows may name the same slot.
        pool.split(2 * kv_heads, self.slots.len() * head_dim, |range| {
            for part in range {
                let (head, is_value) = (part / 2, part % 2 == 1);
                // SAFETY: this thread alone has this head's keys, or values.
                unsafe { self.store_part(isa, &data, head, is_value) };
            }
        });
    }

    /// Stores the keys or the values of one head.
    ///
    /// # Safety
    /// No one else must have them meanwhile.
    unsafe fn store_part<T: KvElement>(
        &self,
        isa: Isa,
        data: &SharedMut<'_, T>,
        head: usize,
        is_value: bool,
    ) {
        let (dim, keys_len) = (self.layout.head_dim, self.layout.keys_len());
        let (skip, len) =
            if is_value { (keys_len, self.layout.head_len() - keys_len) } else { (0, keys_len) };
        let place = |slot: &KvSlot| {
            let start = self.layout.head_start(self.layer, slot.block as usize, head) + skip;
            // SAFETY: the caller's promise.
            unsafe { data.slice(start, len) }
        };
        let rows = if is_value { &self.values } else { &self.keys };
        let source = |index: usize| &rows.row(index)[head * dim..][..dim];
        let mut rotated = [0.0; MAX_HEAD_DIM];
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(later) = self.slots.get(index + ROWS_AHEAD) {
                prefetch::slice(place(later));
            }
            if index + SOURCES_AHEAD < self.slots.len() {
                prefetch::slice(source(index + SOURCES_AHEAD));
            }
            let offset = slot.offset as usize;
            if is_value {
                T::put_value(isa, place(slot), offset, source(index));
                continue;
            }
            let mut key = source(index);
            if let Some((rope, positions)) = self.rotation {
                rotated[..dim].copy_from_slice(key);
                rope.rotate(isa, &mut rotated[..dim], positions[index] as usize);
                key = &rotated[..dim];
            }
            T::put_key(isa, place(slot), offset, key);
        }
    }
}
