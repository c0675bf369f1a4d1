//! From flags to a backend with its model loaded.

use crate::{
    backend::{Backend, sim::SimBackend},
    cli::{BackendKind, Serve},
};

/// Loads what the flags ask for. Takes as long as the weights take to read; blocks.
///
/// # Errors
/// Names the file, the flag or the build feature that is in the way.
pub fn load(serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    match serve.model.backend {
        BackendKind::Sim => Ok(Box::new(SimBackend::new(serve.sim()?))),
        BackendKind::Cpu => load_cpu(serve),
    }
}

fn load_cpu(_serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    anyhow::bail!("--backend cpu is not in this build; --backend sim is")
}
