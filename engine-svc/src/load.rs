//! From flags to a backend with its model loaded.

#[cfg(feature = "torch")]
use anyhow::Context as _;

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

#[cfg(feature = "torch")]
fn load_cpu(serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    use crate::{backend::cpu::CpuBackend, weights};

    let model = serve.model.model.as_deref().context("--backend cpu needs --model")?;
    let model = model.to_str().context("--model is not UTF-8")?;
    let source = weights::open(model, serve.model.load_format, serve.model.seed)?;
    let mut backend = CpuBackend::load(&*source, &serve.cpu()?)?;
    if let Some(name) = &serve.model.model_name {
        backend.rename(name);
    }
    Ok(Box::new(backend))
}

#[cfg(not(feature = "torch"))]
fn load_cpu(_serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    anyhow::bail!("--backend cpu: this build was made without the feature torch; --backend sim is in it")
}
