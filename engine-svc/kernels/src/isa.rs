//! Which instruction set the kernels use: found once, or chosen for a test.

use std::fmt;

/// A level of instruction set, each containing the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Whatever the compiler's baseline offers.
    Portable,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// [`Isa::Avx512`] and AVX512-BF16.
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    /// [`Isa::Avx512Bf16`] and the bf16 tiles of AMX.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl Isa {
    /// All levels, lowest first.
    #[cfg(target_arch = "x86_64")]
    pub const ALL: &[Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Amx];

    /// All levels, lowest first.
    #[cfg(not(target_arch = "x86_64"))]
    pub const ALL: &[Isa] = &[Isa::Portable];

    /// The level with the fastest kernels on this machine. Intel's cores issue the dot product of
    /// AVX512-BF16 at a quarter of the rate of FMA, AMD's at the same rate: the former widen instead where
    /// they have no tiles.
    pub fn detect() -> Isa {
        let mut best = Isa::Portable;
        for &isa in Isa::ALL {
            if isa.is_available() && isa.is_worthwhile() {
                best = isa;
            }
        }
        best
    }

    #[cfg(target_arch = "x86_64")]
    fn is_worthwhile(self) -> bool {
        let vendor = std::arch::x86_64::__cpuid(0);
        let is_intel =
            [vendor.ebx, vendor.edx, vendor.ecx] == [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes);
        self != Isa::Avx512Bf16 || !is_intel
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_worthwhile(self) -> bool {
        true
    }

    /// Whether activations are rounded to bf16 where the weights are bf16.
    pub fn rounds_activations(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 | Isa::Amx => true,
            _ => false,
        }
    }

    /// Whether this machine can run kernels of this level.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            Isa::Avx512Bf16 => Isa::Avx512.is_available() && is_x86_feature_detected!("avx512bf16"),
            Isa::Amx => Isa::Avx512Bf16.is_available() && crate::amx::permitted(),
        }
    }

    /// Whether this machine can run kernels of this level.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Isa::Portable
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bf16 => "avx512-bf16",
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => "amx",
        })
    }
}

/// Defines a function three times over, compiled for the portable baseline, AVX2 and AVX-512, and a
/// caller of the same name that takes an [`Isa`] first. The body is plain Rust that the compiler
/// vectorises; there is no contraction to fused multiply-add, so all three give the same bits.
macro_rules! vectorised {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "kernels take their shapes one by one")]
        $visibility fn $name(isa: $crate::isa::Isa, $($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($arg: $type),*) $(-> $result)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $type),*) $(-> $result)? {
                body($($arg),*)
            }

            match isa {
                // SAFETY: an `Isa` in a pool was checked to be available.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                $crate::isa::Isa::Portable => body($($arg),*),
                // SAFETY: as above; each level contains the ones before it.
                #[cfg(target_arch = "x86_64")]
                _ => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use vectorised;
