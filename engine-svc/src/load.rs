//! From flags to a backend with its model loaded.

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
        BackendKind::Cuda => load_cuda(serve),
    }
}

/// The weights that the flags name.
#[cfg(feature = "torch")]
fn open_weights(serve: &Serve) -> anyhow::Result<Box<dyn crate::weights::WeightSource>> {
    use crate::weights::{self, LoadFormat};

    let model = serve.model.model.as_deref().context("a model needs --model")?;
    let model = match serve.model.load_format {
        LoadFormat::Dummy => model.to_owned(),
        _ => firstlight_hub::resolve(model, firstlight_hub::Wanted::Model)?,
    };
    let model = model.to_str().context("--model is not UTF-8")?;
    Ok(weights::open(model, serve.model.load_format, serve.model.seed)?)
}

/// The name that the flags give the model, if they do; a hub id is one.
#[cfg(feature = "torch")]
fn name_of(serve: &Serve) -> Option<String> {
    let by_id = || Some(firstlight_hub::id_of(serve.model.model.as_deref()?)?.repository);
    serve.model.model_name.clone().or_else(by_id)
}

#[cfg(feature = "cuda")]
fn load_cuda(serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    use crate::backend::cuda;
    use firstlight_cuda::gpu::GpuBoard;

    let options = serve.cuda()?;
    // Before weights are looked at: without a GPU all else is in vain.
    let gpu = firstlight_cuda::driver::Gpu::open(serve.gpu.gpu).context("--backend cuda")?;
    let source = open_weights(serve)?;
    let cache = serve.gpu.kernel_cache()?;
    tracing::info!(gpu = gpu.name(), cache = %cache.display(), "compiling kernels, unless they are there");
    let board =
        GpuBoard::new(gpu, options.number, source.config().head_dim, &cache).context("--backend cuda")?;
    let mut backend = cuda::load::load(board, &*source, &options).context("--backend cuda")?;
    if let Some(name) = name_of(serve) {
        backend.rename(&name);
    }
    Ok(Box::new(backend))
}

/// The machine has no GPU, or else this build cannot use it.
#[cfg(not(feature = "cuda"))]
fn load_cuda(_serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    let gpu = firstlight_cuda::driver::Gpu::open(0).context("--backend cuda")?;
    anyhow::bail!(
        "--backend cuda: {} is there, but this build was made without the feature cuda \
         (cargo build --features cuda); --backend cpu serves the same model",
        gpu.name()
    )
}

#[cfg(feature = "torch")]
fn load_cpu(serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    use crate::backend::cpu::CpuBackend;

    let source = open_weights(serve)?;
    let mut backend = CpuBackend::load(&*source, &serve.cpu()?)?;
    if let Some(name) = name_of(serve) {
        backend.rename(&name);
    }
    Ok(Box::new(backend))
}

#[cfg(not(feature = "torch"))]
fn load_cpu(_serve: &Serve) -> anyhow::Result<Box<dyn Backend>> {
    anyhow::bail!("--backend cpu: this build was made without the feature torch; --backend sim is in it")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use firstlight_cuda::driver::Gpu;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_cuda_backend_without_a_gpu_is_refused_with_the_reason() {
        let flags = ["engine-svc", "--backend", "cuda", "--load-format", "dummy", "--model", "gpt2"];
        let Err(no_gpu) = Gpu::open(0) else { return };
        let refused = load(&Cli::try_parse_from(flags).unwrap().serve).err().expect("there is no GPU");
        let said = format!("{refused:#}");
        assert!(said.starts_with("--backend cuda: ") && said.contains(&no_gpu.to_string()), "{said}");
    }

    #[cfg(feature = "torch")]
    #[test]
    fn a_hub_id_is_the_models_name_unless_another_is_given() {
        let named = |flags: &[&str]| {
            let flags = ["engine-svc", "--model"].into_iter().chain(flags.iter().copied());
            name_of(&Cli::try_parse_from(flags).unwrap().serve)
        };
        assert_eq!(named(&["owner/name"]).as_deref(), Some("owner/name"));
        assert_eq!(named(&["owner/name@v2:q4/model.gguf"]).as_deref(), Some("owner/name"));
        assert_eq!(named(&["owner/name", "--model-name", "mine"]).as_deref(), Some("mine"));
        assert_eq!(named(&["./owner/name"]), None);
    }
}
