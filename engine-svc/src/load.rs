//! From flags to a backend with its model loaded.

use anyhow::Context as _;
use firstlight_cuda::driver::Gpu;

use crate::{
    backend::{Backend, Chunk, sim::SimBackend},
    cli::{BackendKind, Serve},
    sample::Sampling,
};

/// Loads what the flags ask for, and runs it once. Takes as long as the weights take to read; blocks.
///
/// # Errors
/// Names the file, the flag or the build feature that is in the way.
pub fn load(serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    let mut backend: Box<dyn Backend> = match serve.model.backend {
        BackendKind::Sim => Box::new(SimBackend::new(serve.sim()?)),
        BackendKind::Cpu => load_cpu(serve)?,
        BackendKind::Cuda => return Err(no_cuda()),
    };
    warm_up(backend.as_mut()).context("the first forward, before serving")?;
    Ok(backend)
}

/// A prefill and a decode forward in a block that nobody uses yet: pages are touched and threads started here, not
/// in the first request's TTFT.
fn warm_up(backend: &mut dyn Backend) -> anyhow::Result<()> {
    let prompt = vec![0; backend.kv().block_tokens.min(backend.info().context_length).saturating_sub(1)];
    for (tokens, start) in [(&prompt[..], 0), (&[0], prompt.len())] {
        if !tokens.is_empty() {
            backend.forward(&[Chunk { tokens, start, blocks: &[0], sample: Some(&Sampling::GREEDY) }])?;
        }
    }
    Ok(())
}

/// Why there is no CUDA backend here: the machine has no GPU, or else what this build lacks.
fn no_cuda() -> anyhow::Error {
    match Gpu::open(0) {
        Err(error) => anyhow::anyhow!("--backend cuda: {error}"),
        Ok(gpu) => anyhow::anyhow!(
            "--backend cuda: {} is there, but this build cannot run a model on it: it has the kernels, not yet the \
             part that loads weights onto the GPU; --backend cpu serves the same model",
            gpu.name()
        ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cuda_backend_is_refused_with_the_reason() {
        let said = no_cuda().to_string();
        let no_gpu = Gpu::open(0).err().map(|error| error.to_string());
        assert!(said.starts_with("--backend cuda: "), "{said}");
        assert!(said.contains(&no_gpu.unwrap_or_else(|| "--backend cpu".to_owned())), "{said}");
    }
}
