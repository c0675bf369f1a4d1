//! What the machine can do at most, all threads together: arithmetic from registers, reads from
//! memory, and the cost of a dispatch.

use std::hint::black_box;

use firstlight_kernels::buffer::Buffer;
use firstlight_kernels::isa::Isa;
use firstlight_kernels::pool::Pool;

use crate::stopwatch::median;

/// Operations per second in 10⁹, a multiply-add counted as two, and bytes per second in 10⁹. What the
/// machine has no instruction for is not a number.
pub struct Ceilings {
    pub f32: f64,
    pub bf16: f64,
    /// bf16 in the tiles of AMX.
    pub tiles: f64,
    pub int8: f64,
    /// From memory; what stays in a shared cache can be read faster.
    pub read: f64,
}

pub fn measure(pool: &Pool) -> Ceilings {
    let read = read_rate(pool);
    let dispatch = median(10_001, || pool.run(|_| {}));
    let [f32, bf16, tiles, int8] = arithmetic(pool);
    println!(
        "ceilings: f32 {f32:.0} GFLOP/s, bf16 {bf16:.0} GFLOP/s, in tiles {tiles:.0} GFLOP/s, \
         int8 {int8:.0} GOP/s, read {read:.1} GB/s, dispatch {:.2} µs",
        dispatch * 1e6
    );
    Ceilings { f32, bf16, tiles, int8, read }
}

fn read_rate(pool: &Pool) -> f64 {
    let mut data = Buffer::<u64>::zeroed(1 << 26);
    data.fill(1);
    let share = data.len() / pool.threads();
    let seconds = median(9, || {
        pool.run(|thread| {
            let mut sums = [0u64; 64];
            for chunk in data[thread * share..][..share].chunks_exact(64) {
                fetch_ahead(chunk);
                for (sum, value) in sums.iter_mut().zip(chunk) {
                    *sum ^= value;
                }
            }
            black_box(sums);
        });
    });
    size_of_val(&data[..]) as f64 / seconds / 1e9
}

/// Asks for what lies 32 KiB further on.
fn fetch_ahead(chunk: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    for line in chunk.chunks_exact(8) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch may name any address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast::<i8>().wrapping_add(32 << 10)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = chunk;
}

#[cfg(target_arch = "x86_64")]
fn arithmetic(pool: &Pool) -> [f64; 4] {
    const TURNS: usize = 2_000_000;
    let rate = |isa: Isa, operations: usize, work: unsafe fn(usize)| {
        if !isa.is_available() {
            return f64::NAN;
        }
        // SAFETY: the machine has these instructions.
        let seconds = median(5, || pool.run(|_| unsafe { work(TURNS) }));
        (16 * TURNS * operations * pool.threads()) as f64 / seconds / 1e9
    };
    let avx2 = rate(Isa::Avx2, 16, peak::f32_avx2);
    [
        avx2.max(rate(Isa::Avx512, 32, peak::f32_avx512)),
        rate(Isa::Avx512Bf16, 64, peak::bf16_avx512),
        rate(Isa::Amx, 64, peak::bf16_amx),
        rate(Isa::Avx512, 128, peak::int8_avx512),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn arithmetic(_pool: &Pool) -> [f64; 4] {
    [f64::NAN; 4]
}

/// Loops of sixteen independent multiply-adds of vectors on registers, or as much work in tiles.
#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::{asm, x86_64::*};
    use std::hint::black_box;

    #[target_feature(enable = "avx2,fma")]
    pub fn f32_avx2(turns: usize) {
        let x = _mm256_set1_ps(black_box(0.5));
        let mut sums = [_mm256_setzero_ps(); 8];
        for _ in 0..2 * turns {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(x, x, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub fn f32_avx512(turns: usize) {
        let x = _mm512_set1_ps(black_box(0.5));
        let mut sums = [_mm512_setzero_ps(); 16];
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(x, x, *sum);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn bf16_avx512(turns: usize) {
        let x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(0.5));
        let mut sums = [_mm512_setzero_ps(); 16];
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, x, x);
            }
        }
        black_box(sums);
    }

    /// # Safety
    /// The system must permit tiles, of which the thread must hold none.
    pub unsafe fn bf16_amx(turns: usize) {
        // Palette 1, eight tiles of 16 rows of 64 bytes.
        let mut shapes = [0u8; 64];
        shapes[0] = 1;
        shapes[16..32].copy_from_slice(&[64, 0].repeat(8));
        shapes[48..56].fill(16);
        // A product of tiles does what 256 of vectors do; six of them can go on at a time.
        let turns = turns * 16 / 256 / 6;
        // SAFETY: the shapes are valid; the rest is the caller's promise.
        unsafe {
            asm!("ldtilecfg [{}]", "tilezero tmm6", "tilezero tmm7", in(reg) &raw const shapes);
            for _ in 0..turns {
                asm!(
                    "tdpbf16ps tmm0, tmm6, tmm7",
                    "tdpbf16ps tmm1, tmm6, tmm7",
                    "tdpbf16ps tmm2, tmm6, tmm7",
                    "tdpbf16ps tmm3, tmm6, tmm7",
                    "tdpbf16ps tmm4, tmm6, tmm7",
                    "tdpbf16ps tmm5, tmm6, tmm7",
                );
            }
            asm!("tilerelease");
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn int8_avx512(turns: usize) {
        let x = _mm512_set1_epi8(black_box(1));
        let mut sums = [_mm512_setzero_si512(); 16];
        for _ in 0..turns {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, x);
            }
        }
        black_box(sums);
    }
}
