//! The tile registers of AMX (Intel SDM vol. 1 ch. 18), through inline assembly.
//!
//! A tile is 16 rows of 64 bytes. The product of two adds `A[16, 32] · B[32, 16]` in bf16 to 16 × 16 floats, `B`
//! with pairs of neighbouring k side by side; denormals count as zero.
//!
//! Contract of the `unsafe` here: tile instructions fault unless the process was [`permitted`] to use them
//! and this thread holds [`Tiles`]. The compiler knows nothing of these registers, and keeps volatile assembly
//! in order.

use std::arch::asm;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;

/// Bytes of one row of a tile.
pub(crate) const ROW_BYTES: usize = 64;

/// Whether this machine has tiles with bf16 products, and the system lets this process use them. Asks the
/// system once: the state of a thread grows by 8 KiB where it does.
pub(crate) fn permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| has_instructions() && request())
}

fn has_instructions() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    let both = BF16 | TILE;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & both == both
}

/// Linux grants tiles to a process that asks for them.
#[cfg(target_os = "linux")]
fn request() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: takes two numbers, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn request() -> bool {
    false
}

/// This thread's eight tiles, shaped as configured while it is held. Their contents are gone afterwards, and what
/// the system saves with the thread is small again.
pub(crate) struct Tiles(PhantomData<*const ()>);

impl Tiles {
    /// # Safety
    /// Tiles must be [`permitted`], and this thread must hold none.
    pub(crate) unsafe fn configure(shapes: &Shapes) -> Tiles {
        // SAFETY: reads 64 bytes; the caller's promise.
        unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(nostack, preserves_flags, readonly)) };
        Tiles(PhantomData)
    }
}

/// What the eight tiles hold: palette 1, then from byte 16 the bytes of a row of each, from byte 48 its rows.
#[repr(align(64))]
pub(crate) struct Shapes(#[expect(dead_code, reason = "read by the processor")] [u8; 64]);

impl Shapes {
    /// All of full size.
    pub(crate) const FULL: Shapes = Shapes::new([(ROWS, ROW_BYTES); 8]);

    /// The rows of each, and the bytes of a row.
    pub(crate) const fn new(shapes: [(usize, usize); 8]) -> Shapes {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            let (rows, row_bytes) = shapes[tile];
            assert!(rows <= ROWS && row_bytes <= ROW_BYTES, "larger than a tile");
            bytes[16 + 2 * tile] = row_bytes as u8;
            bytes[48 + tile] = rows as u8;
            tile += 1;
        }
        Shapes(bytes)
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: held by this thread, since it is not `Send`.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}

/// Clears tile `T`.
///
/// # Safety
/// This thread must hold [`Tiles`].
#[inline(always)]
pub(crate) unsafe fn zero<const T: u8>() {
    // SAFETY: the caller's promise.
    unsafe { asm!("tilezero tmm{t}", t = const T, options(nostack, preserves_flags)) };
}

/// Reads tile `T` from 16 rows of 64 bytes, `stride` bytes apart.
///
/// # Safety
/// This thread must hold [`Tiles`], and the rows must be readable.
#[inline(always)]
pub(crate) unsafe fn load<const T: u8>(from: *const u8, stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("tileloadd tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from,
             stride = in(reg) stride, options(nostack, preserves_flags, readonly));
    }
}

/// As [`load`], of what is not read again soon: it need not stay in the first-level cache.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub(crate) unsafe fn load_once<const T: u8>(from: *const u8, stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("tileloaddt1 tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from,
             stride = in(reg) stride, options(nostack, preserves_flags, readonly));
    }
}

/// Writes tile `T` to 16 rows of 64 bytes, `stride` bytes apart.
///
/// # Safety
/// This thread must hold [`Tiles`], and the rows must be its to write.
#[inline(always)]
pub(crate) unsafe fn store<const T: u8>(to: *mut u8, stride: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("tilestored [{to} + {stride}], tmm{t}", t = const T, to = in(reg) to,
             stride = in(reg) stride, options(nostack, preserves_flags));
    }
}

/// Adds the products of tiles `A` and `B`, bf16 both, to tile `C`.
///
/// # Safety
/// This thread must hold [`Tiles`].
#[inline(always)]
pub(crate) unsafe fn multiply<const C: u8, const A: u8, const B: u8>() {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
             options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn a_product_of_tiles_is_that_of_their_matrices() {
        if !permitted() {
            return;
        }
        let value = |seed: usize| (seed * 37 % 101) as f32 / 64.0 - 0.75;
        let a: Vec<bf16> = (0..16 * 32).map(|i| bf16::from_f32(value(i))).collect();
        // Row k / 2 holds the pairs (k, k + 1) of each of 16 columns.
        let b: Vec<bf16> = (0..32 * 16).map(|i| bf16::from_f32(value(i + 7))).collect();
        let mut c = [f32::NAN; 256];
        // SAFETY: permitted, and each tile lies in its array.
        unsafe {
            let _tiles = Tiles::configure(&Shapes::FULL);
            zero::<0>();
            load::<6>(a.as_ptr().cast(), ROW_BYTES);
            load::<7>(b.as_ptr().cast(), ROW_BYTES);
            multiply::<0, 6, 7>();
            store::<0>(c.as_mut_ptr().cast(), ROW_BYTES);
        }
        for (index, got) in c.into_iter().enumerate() {
            let (row, column) = (index / 16, index % 16);
            let product = |k: usize| a[row * 32 + k].to_f64() * b[(k / 2 * 16 + column) * 2 + k % 2].to_f64();
            let want: f64 = (0..32).map(product).sum();
            assert!((f64::from(got) - want).abs() < 1e-4, "[{row}, {column}] is {got}, should be {want}");
        }
    }
}
