//! The checks of `tests/emulated`, with the same sources, on a real GPU.
//!
//! ```text
//! check_on_gpu compile ARCHITECTURE CACHE NVRTC_FOLDER    compile every module into the folder CACHE; needs no GPU
//! check_on_gpu run CACHE [NVRTC_FOLDER]                   check every module on GPU 0; JSON on standard output
//! ```
//! `run` compiles what CACHE lacks, if it is told where NVRTC is. A kernel that leaves the GPU unusable is the last to
//! be checked. Exit status: 0 all well, 1 something is wrong, 2 there is no GPU, or the command line makes no sense.

#[path = "../../checks/mod.rs"]
mod checks;
mod platform;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use checks::report::{Report, quoted};
use firstlight_cuda::cache::{COMPILER, Cache};
use firstlight_cuda::driver::Gpu;
use firstlight_cuda::nvrtc::{Architecture, Nvrtc, NvrtcError};
use firstlight_cuda::source::Module;
use platform::Kernels;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["compile", architecture, cache, nvrtc] => compile(architecture, cache, nvrtc),
        ["run", cache] => run(cache, None),
        ["run", cache, nvrtc] => run(cache, Some(nvrtc)),
        _ => {
            eprintln!(
                "usage: check_on_gpu compile ARCHITECTURE CACHE NVRTC_FOLDER | run CACHE [NVRTC_FOLDER]"
            );
            Ok(ExitCode::from(2))
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("check_on_gpu: {error}");
        ExitCode::FAILURE
    })
}

type Done = Result<ExitCode, Box<dyn std::error::Error>>;

fn compile(architecture: &str, cache: &str, nvrtc: &str) -> Done {
    let sm = architecture.strip_prefix("sm_").ok_or("an architecture is sm_90, sm_100, …")?.parse()?;
    let (nvrtc, cache) = (Nvrtc::load(Some(Path::new(nvrtc)))?, Cache::new(Path::new(cache), COMPILER));
    for module in Module::all() {
        module_for(&module, Architecture { sm }, &cache, Some(&nvrtc))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run(cache: &str, nvrtc: Option<&str>) -> Done {
    match Gpu::open(0) {
        Ok(gpu) => platform::use_gpu(gpu),
        Err(error) => {
            eprintln!("check_on_gpu: {error}");
            return Ok(ExitCode::from(2));
        }
    }
    let gpu = platform::gpu();
    let nvrtc = nvrtc.map(|folder| Nvrtc::load(Some(Path::new(folder)))).transpose()?;
    let cache = Cache::new(Path::new(cache), COMPILER);
    let check = |module: Module| {
        let cubin = module_for(&module, gpu.architecture(), &cache, nvrtc.as_ref());
        let cubin = cubin.map_err(|error| error.to_string())?;
        let kernels = Kernels::load(module, &cubin).map_err(|error| error.to_string())?;
        // Memory that is refused brings a check down; the report is wanted all the same.
        catch_unwind(AssertUnwindSafe(|| checks::check(&kernels)))
            .unwrap_or_else(|_| Err("the check panicked".to_owned()))
    };
    let modules = Module::all().into_iter().map(|module| (module.name(), module));
    let report = Report::of(modules, check, || gpu.synchronize().is_ok());
    let (free, total) = gpu.memory().map_or((None, None), |(free, total)| (Some(free), Some(total)));
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "null".to_owned(), |bytes| bytes.to_string());
    let head = [
        ("gpu", quoted(gpu.name())),
        ("architecture", quoted(&gpu.architecture().to_string())),
        ("memory_bytes", bytes(total)),
        ("free_bytes", bytes(free)),
    ];
    println!("{}", report.to_json(&head));
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn module_for(
    module: &Module,
    architecture: Architecture,
    cache: &Cache,
    nvrtc: Option<&Nvrtc>,
) -> Result<Vec<u8>, NvrtcError> {
    cache.get(module, architecture, || match nvrtc {
        Some(nvrtc) => nvrtc.compile(module, architecture).map(|compiled| compiled.cubin),
        None => Err(NvrtcError::Load {
            library: module.name(),
            reason: format!("not in the cache for {architecture}, and no NVRTC was named"),
        }),
    })
}
