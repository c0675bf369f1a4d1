//! The checks of `tests/emulated`, with the same sources, on a real GPU.
//!
//! ```text
//! check_on_gpu compile ARCHITECTURE CACHE NVRTC_FOLDER    compile every module into the folder CACHE; needs no GPU
//! check_on_gpu run CACHE [NVRTC_FOLDER]                   check every module on GPU 0; JSON on standard output
//! ```
//! `run` compiles what CACHE lacks, if it is told where NVRTC is. Exit status: 0 all well, 1 a kernel is wrong, 2
//! there is no GPU, or the command line makes no sense.

#[path = "../../checks/mod.rs"]
mod checks;
mod platform;

use std::path::Path;
use std::process::ExitCode;

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
            Err("usage: check_on_gpu compile ARCHITECTURE CACHE NVRTC_FOLDER | run CACHE [NVRTC_FOLDER]"
                .into())
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("check_on_gpu: {error}");
        ExitCode::from(2)
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
    let gpu = Gpu::open(0)?;
    platform::use_gpu(gpu);
    let gpu = platform::gpu();
    let nvrtc = nvrtc.map(|folder| Nvrtc::load(Some(Path::new(folder)))).transpose()?;
    let cache = Cache::new(Path::new(cache), COMPILER);
    let mut modules = Vec::new();
    let mut wrong = 0;
    for module in Module::all() {
        let cubin = module_for(&module, gpu.architecture(), &cache, nvrtc.as_ref())?;
        let checked = checks::check(&Kernels::load(module, &cubin)?);
        wrong += usize::from(checked.is_err());
        let (part, reason) = match checked {
            Ok(part) => (format!("{part:.4}"), "null".to_owned()),
            Err(reason) => ("null".to_owned(), quoted(&reason)),
        };
        let name = quoted(&module.name());
        modules.push(format!("    {{\"module\": {name}, \"error_part\": {part}, \"wrong\": {reason}}}"));
    }
    let (free, total) = gpu.memory()?;
    println!("{{");
    println!("  \"gpu\": {}, \"architecture\": \"{}\",", quoted(gpu.name()), gpu.architecture());
    println!("  \"memory_bytes\": {total}, \"free_bytes\": {free},");
    println!("  \"modules\": [\n{}\n  ]\n}}", modules.join(",\n"));
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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

fn quoted(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => " ".to_owned(),
            c => c.to_string(),
        })
        .collect();
    format!("\"{escaped}\"")
}
