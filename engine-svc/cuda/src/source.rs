//! The sources of the kernels, in modules: one `.cu` file each, compiled for a number format and, where attention is
//! concerned, a head dimension.

use half::{bf16, f16};
use sha2::{Digest, Sha256};

use crate::nvrtc::OPTIONS;

/// One file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `paged_decode.cu`
    PagedDecode,
    /// `paged_prefill.cu`
    PagedPrefill,
    /// `kv_append_rope.cu`
    KvAppendRope,
    /// `norm.cu`
    Norm,
    /// `activation.cu`
    Activation,
    /// `embed.cu`
    Embed,
    /// `sample.cu`
    Sample,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PagedDecode,
        Self::PagedPrefill,
        Self::KvAppendRope,
        Self::Norm,
        Self::Activation,
        Self::Embed,
        Self::Sample,
    ];

    /// File name without its extension.
    pub fn name(self) -> &'static str {
        match self {
            Self::PagedDecode => "paged_decode",
            Self::PagedPrefill => "paged_prefill",
            Self::KvAppendRope => "kv_append_rope",
            Self::Norm => "norm",
            Self::Activation => "activation",
            Self::Embed => "embed",
            Self::Sample => "sample",
        }
    }

    /// The text of its file.
    pub fn text(self) -> &'static str {
        match self {
            Self::PagedDecode => include_str!("../kernels/paged_decode.cu"),
            Self::PagedPrefill => include_str!("../kernels/paged_prefill.cu"),
            Self::KvAppendRope => include_str!("../kernels/kv_append_rope.cu"),
            Self::Norm => include_str!("../kernels/norm.cu"),
            Self::Activation => include_str!("../kernels/activation.cu"),
            Self::Embed => include_str!("../kernels/embed.cu"),
            Self::Sample => include_str!("../kernels/sample.cu"),
        }
    }

    /// The kernels it holds.
    pub fn kernels(self) -> &'static [&'static str] {
        match self {
            Self::PagedDecode => &["paged_decode_1", "paged_decode_2", "paged_decode_4", "paged_decode_join"],
            Self::PagedPrefill => &["paged_prefill"],
            Self::KvAppendRope => &["kv_append_rope"],
            Self::Norm => &["rms_norm", "layer_norm", "head_norm"],
            Self::Activation => &["silu_mul", "gelu_tanh", "gelu_erf"],
            Self::Embed => &["embed"],
            Self::Sample => &["sample"],
        }
    }

    /// Whether it is compiled for a head dimension.
    pub fn by_head_dim(self) -> bool {
        matches!(self, Self::PagedDecode | Self::PagedPrefill | Self::KvAppendRope)
    }

    /// Whether numbers of 16 bits go in or out.
    pub fn by_number(self) -> bool {
        self != Self::Sample
    }
}

/// The headers beside the kernels, by the name they are included with.
pub const HEADERS: [(&str, &str); 4] = [
    ("device.h", include_str!("../kernels/device.h")),
    ("numbers.h", include_str!("../kernels/numbers.h")),
    ("warp.h", include_str!("../kernels/warp.h")),
    ("kv.h", include_str!("../kernels/kv.h")),
];

/// Head dimensions that kernels are made for.
pub const HEAD_DIMS: [usize; 4] = [64, 80, 96, 128];

/// A 16-bit float format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Number {
    /// 8 bits of exponent.
    Bf16,
    /// 5 bits of exponent.
    F16,
}

impl Number {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::F16];

    /// As the sources call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "Bf16",
            Self::F16 => "F16",
        }
    }

    /// The bits of the nearest number.
    pub fn narrow(self, value: f32) -> u16 {
        match self {
            Self::Bf16 => bf16::from_f32(value).to_bits(),
            Self::F16 => f16::from_f32(value).to_bits(),
        }
    }

    /// The number of these bits.
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Self::Bf16 => bf16::from_bits(bits).to_f32(),
            Self::F16 => f16::from_bits(bits).to_f32(),
        }
    }
}

/// A family compiled for one number format and head dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Module {
    /// The file.
    pub family: Family,
    /// Format of 16-bit numbers.
    pub number: Number,
    /// One of [`HEAD_DIMS`]; families that do not depend on it ignore it.
    pub head_dim: usize,
}

impl Module {
    /// Every module that there is, each once.
    pub fn all() -> Vec<Self> {
        let mut modules = Vec::new();
        for family in Family::ALL {
            let numbers = if family.by_number() { &Number::ALL[..] } else { &Number::ALL[..1] };
            let head_dims = if family.by_head_dim() { &HEAD_DIMS[..] } else { &HEAD_DIMS[..1] };
            for &number in numbers {
                modules.extend(head_dims.iter().map(|&head_dim| Self { family, number, head_dim }));
            }
        }
        modules
    }

    /// Name for people and files: `paged_decode_bf16_64`.
    pub fn name(&self) -> String {
        let mut name = self.family.name().to_owned();
        if self.family.by_number() {
            name += if self.number == Number::Bf16 { "_bf16" } else { "_f16" };
        }
        if self.family.by_head_dim() {
            name += &format!("_{}", self.head_dim);
        }
        name
    }

    /// Macros that the source is compiled with.
    pub fn defines(&self) -> [String; 2] {
        [format!("-DNUMBER={}", self.number.name()), format!("-DHEAD_DIM={}", self.head_dim)]
    }

    /// Hash of everything that the compiled module depends on besides the compiler: 64 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        let defines = self.defines();
        let headers = HEADERS.iter().flat_map(|(name, text)| [*name, *text]);
        let options = OPTIONS.into_iter().chain(defines.iter().map(String::as_str));
        for part in headers.chain([self.family.text()]).chain(options) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kernel_is_in_the_file_that_names_it() {
        for family in Family::ALL {
            let defined: BTreeSet<&str> = family
                .text()
                .lines()
                .filter_map(|line| line.strip_prefix("KERNEL(")?.split(", ").nth(2))
                .collect();
            assert_eq!(defined, family.kernels().iter().copied().collect(), "{}", family.name());
        }
    }

    #[test]
    fn modules_differ_in_name_and_fingerprint() {
        let modules = Module::all();
        let names: BTreeSet<String> = modules.iter().map(Module::name).collect();
        let fingerprints: BTreeSet<String> = modules.iter().map(Module::fingerprint).collect();
        assert_eq!((names.len(), fingerprints.len()), (modules.len(), modules.len()));
    }
}
