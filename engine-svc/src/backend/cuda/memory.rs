//! How many KV blocks fit into the memory of a GPU.

use std::fmt;

/// What is known of the device's memory once the weights are loaded; bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Of the card.
    pub total: u64,
    /// Not in use by anyone, after the weights.
    pub free: u64,
    /// Weights of this engine, part of what is in use.
    pub weights: u64,
    /// What forwards and captured graphs will still need.
    pub workspace: u64,
}

/// Most blocks: a place in the pool is a 32-bit number.
const MOST_BLOCKS: u64 = (i32::MAX as u64) / firstlight_cuda::kv::BLOCK_TOKENS as u64 - 1;

/// Blocks for sequences in a pool that leaves the engine within `fraction` of the card; one more block, for padding
/// rows, is part of the arithmetic. `asked` is an upper limit.
///
/// # Errors
/// When not even one block fits, or fewer than were asked for.
pub fn kv_blocks(
    memory: DeviceMemory,
    fraction: f64,
    block_bytes: u64,
    asked: Option<u64>,
) -> Result<u64, OutOfMemory> {
    let used = memory.total.saturating_sub(memory.free);
    let allowed = (memory.total as f64 * fraction.clamp(0.0, 1.0)) as u64;
    let room = allowed.saturating_sub(used).saturating_sub(memory.workspace);
    let fit = (room / block_bytes.max(1)).saturating_sub(1).min(MOST_BLOCKS);
    match asked {
        Some(asked) if asked <= fit && asked > 0 => Ok(asked),
        None if fit > 0 => Ok(fit),
        _ => Err(OutOfMemory { memory, fraction, block_bytes, asked, fit }),
    }
}

/// The pool does not fit; says why in figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OutOfMemory {
    memory: DeviceMemory,
    fraction: f64,
    block_bytes: u64,
    asked: Option<u64>,
    fit: u64,
}

impl std::error::Error for OutOfMemory {}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceMemory { total, free, weights, workspace } = self.memory;
        let used = total.saturating_sub(free);
        let others = used.saturating_sub(weights);
        let room = total as f64 * self.fraction - used as f64 - workspace as f64;
        write!(f, "the KV pool does not fit on the GPU: ")?;
        write!(f, "{} in all × {} (--kv-memory-fraction)", Size(total as f64), self.fraction)?;
        write!(f, " − {} of weights − {} of other use", Size(weights as f64), Size(others as f64))?;
        write!(f, " − {} for forwards and graphs = {}; ", Size(workspace as f64), Size(room))?;
        write!(
            f,
            "a block of 16 tokens takes {}, one is set aside for padding, ",
            Size(self.block_bytes as f64)
        )?;
        match (self.asked, self.fit) {
            (Some(asked), fit) => {
                write!(f, "so {fit} fit and {asked} were asked for (--kv-tokens, --kv-blocks)")
            }
            (None, _) => {
                write!(f, "so none is left; free memory, raise the fraction, or take a smaller model")
            }
        }
    }
}

/// Bytes for people.
struct Size(f64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.abs();
        match magnitude {
            _ if magnitude >= 1e9 => write!(f, "{:.2} GB", self.0 / 1e9),
            _ if magnitude >= 1e6 => write!(f, "{:.1} MB", self.0 / 1e6),
            _ => write!(f, "{:.1} kB", self.0 / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn memory(free: u64) -> DeviceMemory {
        DeviceMemory { total: 140 * GB, free, weights: GB, workspace: 2 * GB }
    }

    #[test]
    fn the_pool_takes_what_is_left_of_the_fraction() {
        // 126 − 20 in use − 2 of workspace = 104 GB, of which one block is for padding.
        assert_eq!(kv_blocks(memory(120 * GB), 0.9, GB, None), Ok(103));
    }

    #[test]
    fn a_limit_is_kept_where_it_fits() {
        assert_eq!(kv_blocks(memory(120 * GB), 0.9, GB, Some(40)), Ok(40));
        assert!(kv_blocks(memory(120 * GB), 0.9, GB, Some(103)).is_ok());
        assert!(kv_blocks(memory(120 * GB), 0.9, GB, Some(104)).is_err());
        assert!(kv_blocks(memory(120 * GB), 0.9, GB, Some(0)).is_err());
    }

    #[test]
    fn a_place_in_the_pool_stays_within_32_bits() {
        let blocks = kv_blocks(memory(139 * GB), 1.0, 1, None).unwrap();
        assert!(i32::try_from((blocks + 1) * 16).is_ok());
    }

    #[test]
    fn out_of_memory_shows_the_arithmetic() {
        let error = kv_blocks(memory(15 * GB), 0.9, 4_718_592, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the KV pool does not fit on the GPU: 140.00 GB in all × 0.9 (--kv-memory-fraction) − 1.00 GB of weights \
             − 124.00 GB of other use − 2.00 GB for forwards and graphs = -1.00 GB; a block of 16 tokens takes 4.7 MB, \
             one is set aside for padding, so none is left; free memory, raise the fraction, or take a smaller model"
        );
        let asked = kv_blocks(memory(20 * GB), 0.9, GB, Some(9)).unwrap_err();
        assert!(
            asked.to_string().ends_with("so 3 fit and 9 were asked for (--kv-tokens, --kv-blocks)"),
            "{asked}"
        );
    }
}
