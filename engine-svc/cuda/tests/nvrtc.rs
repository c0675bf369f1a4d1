//! Every kernel compiles for every architecture, and takes the registers that the committed table says.
//!
//! The tables are in `tests/usage`. Where a change to a kernel changes one on purpose, write it again:
//! `FIRSTLIGHT_WRITE_USAGE=1 cargo test --release --workspace --test nvrtc`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use firstlight_cuda::nvrtc::{Architecture, Nvrtc, NvrtcError};
use firstlight_cuda::source::{Family, Module, Number};

const HEADER: &str = "module\tkernel\tregisters\tspill bytes\tstack bytes\tstatic shared bytes\n";

/// What one kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    registers: u32,
    spill_bytes: u32,
    stack_bytes: u32,
    shared_bytes: u32,
}

#[test]
fn every_kernel_compiles_for_ampere_with_the_registers_in_the_table() {
    check(Architecture { sm: 80 });
}

#[test]
fn every_kernel_compiles_for_hopper_with_the_registers_in_the_table() {
    check(Architecture { sm: 90 });
}

#[test]
fn every_kernel_compiles_for_blackwell_with_the_registers_in_the_table() {
    check(Architecture { sm: 100 });
}

fn check(architecture: Architecture) {
    let table = HEADER.to_owned() + &measure(architecture);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/usage/{architecture}.tsv"));
    if env::var_os("FIRSTLIGHT_WRITE_USAGE").is_some() {
        fs::write(&path, &table).expect("the table can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let changed: Vec<_> =
        table.lines().filter(|line| !committed.lines().any(|other| other == *line)).collect();
    assert!(changed.is_empty(), "not as in {}:\n{}", path.display(), changed.join("\n"));
    assert_eq!(table.lines().count(), committed.lines().count(), "{} has old lines", path.display());
}

fn measure(architecture: Architecture) -> String {
    let nvrtc = nvrtc();
    let mut lines = String::new();
    for module in Module::all() {
        let name = module.name();
        let compiled = nvrtc.compile(&module, architecture).unwrap_or_else(|error| panic!("{error}"));
        assert!(compiled.cubin.starts_with(b"\x7fELF"), "{name} for {architecture}");
        assert!(!compiled.log.contains("warning"), "{name} for {architecture}: {}", compiled.log);
        let usages = parse(&compiled.log);
        let kernels: BTreeSet<&str> = usages.keys().map(String::as_str).collect();
        assert_eq!(kernels, module.family.kernels().iter().copied().collect(), "{name}: {}", compiled.log);
        for (kernel, usage) in usages {
            let Usage { registers, spill_bytes, stack_bytes, shared_bytes } = usage;
            assert_eq!(spill_bytes, 0, "{kernel} of {name} for {architecture} spills");
            writeln!(lines, "{name}\t{kernel}\t{registers}\t{spill_bytes}\t{stack_bytes}\t{shared_bytes}")
                .expect("text");
        }
    }
    lines
}

#[test]
fn a_source_that_does_not_compile_is_refused_with_the_compilers_words() {
    let module = Module { family: Family::PagedPrefill, number: Number::Bf16, head_dim: 65 };
    match nvrtc().compile(&module, Architecture::LEAST) {
        Err(NvrtcError::Compile { module, log, .. }) => {
            assert!(
                module == "paged_prefill_bf16_65" && log.contains("no kernels for this head dimension"),
                "{log}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_architecture_that_is_unknown_is_refused() {
    let module = Module { family: Family::Embed, number: Number::F16, head_dim: 64 };
    let error = nvrtc().compile(&module, Architecture { sm: 12 }).expect_err("there is no sm_12");
    assert!(error.to_string().contains("sm_12"), "{error}");
}

fn nvrtc() -> Nvrtc {
    let cache = env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(env::var_os("HOME").expect("HOME")).join(".cache"));
    let folder = cache.join("firstlight/nvrtc-13.0.88/lib");
    Nvrtc::load(Some(&folder)).unwrap_or_else(|error| panic!("{error}; `make setup` fetches it"))
}

/// What `--ptxas-options=-v` says of each kernel.
fn parse(log: &str) -> BTreeMap<String, Usage> {
    let mut usages = BTreeMap::new();
    let mut kernel = None;
    let mut usage = Usage { registers: 0, spill_bytes: 0, stack_bytes: 0, shared_bytes: 0 };
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("entry function '") {
            kernel = rest.split('\'').next();
            usage.shared_bytes = 0;
        }
        if line.contains("bytes stack frame") {
            usage.stack_bytes = number_before(line, " bytes stack frame").unwrap_or_default();
            usage.spill_bytes = number_before(line, " bytes spill stores").unwrap_or_default()
                + number_before(line, " bytes spill loads").unwrap_or_default();
        }
        if let Some(registers) = number_before(line, " registers") {
            usage.registers = registers;
            usage.shared_bytes = number_before(line, " bytes smem").unwrap_or_default();
            usages.insert(kernel.expect("a kernel's name comes first").to_owned(), usage);
        }
    }
    usages
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    line[..line.find(words)?].rsplit([' ', ',']).next()?.parse().ok()
}

#[test]
fn the_compilers_words_are_understood() {
    let log = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'norm' for 'sm_90'\n\
        ptxas info    : Function properties for norm\n    \
        8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
        ptxas info    : Used 40 registers, used 1 barriers, 8 bytes stack, 64 bytes smem\n";
    let want = Usage { registers: 40, spill_bytes: 16, stack_bytes: 8, shared_bytes: 64 };
    assert_eq!(parse(log), BTreeMap::from([("norm".to_owned(), want)]));
}
