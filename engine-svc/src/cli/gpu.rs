//! Flags of the cuda backend.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

/// The GPU.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --backend cuda")]
pub struct GpuArgs {
    /// Which GPU, counted from 0.
    #[arg(long, env = "FIRSTLIGHT_GPU", value_name = "N", default_value_t = 0)]
    pub gpu: usize,
    /// Part of the GPU's memory that the engine may fill, weights and KV pool together.
    #[arg(long, env = "FIRSTLIGHT_KV_MEMORY_FRACTION", value_name = "0..1", default_value_t = 0.9)]
    pub kv_memory_fraction: f64,
    /// Rows of the largest decode forward that is captured as a graph; more rows take several forwards.
    #[arg(long, env = "FIRSTLIGHT_GRAPH_ROWS", value_name = "N", default_value_t = 256)]
    pub graph_rows: usize,
    /// Run decode forwards kernel by kernel. The tokens are the same.
    #[arg(long, env = "FIRSTLIGHT_NO_GRAPH")]
    pub no_graph: bool,
    /// Multiply over a fixed number of rows, so that a request's tokens do not depend on its neighbours; slower.
    #[arg(long, env = "FIRSTLIGHT_BATCH_INVARIANT")]
    pub batch_invariant: bool,
    /// Name forwards for a profiler such as nsys; needs libnvtx3interop.
    #[arg(long, env = "FIRSTLIGHT_NVTX")]
    pub nvtx: bool,
    /// Where compiled kernels are kept; by default firstlight/kernels in the user's cache folder.
    #[arg(long, env = "FIRSTLIGHT_KERNEL_CACHE", value_name = "FOLDER")]
    pub kernel_cache: Option<PathBuf>,
}

impl GpuArgs {
    /// Where compiled kernels are kept.
    ///
    /// # Errors
    /// When no flag says so and the user has no home.
    pub fn kernel_cache(&self) -> anyhow::Result<PathBuf> {
        let cache = || {
            let base =
                std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
            let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
            Some(base.join("firstlight/kernels"))
        };
        self.kernel_cache
            .clone()
            .or_else(cache)
            .context("--kernel-cache: neither XDG_CACHE_HOME nor HOME is set")
    }
}
