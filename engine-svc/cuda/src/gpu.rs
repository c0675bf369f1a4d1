//! A [`Board`] that is a GPU: kernels through the driver, multiplications and graphs through libtorch, all on one
//! stream.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::arguments::Arguments;
use crate::board::{Board, BoardError, Product};
use crate::cache::{COMPILER, Cache};
use crate::driver::{Event, Gpu, LoadedModule, Memory, Pinned, Stream};
use crate::launch::Launch;
use crate::nvrtc::{Nvrtc, NvrtcError};
use crate::source::{Family, Module, Number};
use crate::torch::{Graph, Recording, Torch, libtorch_folder};

/// Where PyTorch's packages keep CUDA's libraries, from the folder of libtorch.
const PACKAGED_NVRTC: &str = "../../nvidia/cu13/lib";

/// A GPU.
pub struct GpuBoard {
    gpu: Gpu,
    torch: Torch,
    stream: Stream,
    number: Number,
    modules: HashMap<Family, LoadedModule>,
    /// By address.
    memory: BTreeMap<u64, Memory>,
    recording: Option<Recording>,
}

impl GpuBoard {
    /// `gpu` with the kernels for `number` and `head_dim`, compiled unless `cache` has them.
    ///
    /// # Errors
    /// When there is no libtorch for it, or no compiler that is needed.
    pub fn new(gpu: Gpu, number: Number, head_dim: usize, cache: &Path) -> Result<Self, BoardError> {
        let torch = Torch::open(gpu.ordinal()).map_err(failed)?;
        // SAFETY: of the pool of this GPU's streams, which lives as long as the process.
        let stream = unsafe { Stream::borrowed(&gpu, torch.stream()) };
        let cache = Cache::new(cache, COMPILER);
        let mut compiler = None;
        let mut modules = HashMap::new();
        for family in Family::ALL {
            let module = Module { family, number, head_dim };
            let compile = || {
                let nvrtc = match compiler.take() {
                    Some(nvrtc) => nvrtc,
                    None => nvrtc()?,
                };
                let compiled = compiler.insert(nvrtc).compile(&module, gpu.architecture())?;
                Ok(compiled.cubin)
            };
            let cubin = cache.get(&module, gpu.architecture(), compile).map_err(failed)?;
            modules.insert(family, LoadedModule::load(&gpu, family, &cubin).map_err(failed)?);
        }
        Ok(Self { gpu, torch, stream, number, modules, memory: BTreeMap::new(), recording: None })
    }
}

/// From where the loader looks, else from PyTorch's packages.
fn nvrtc() -> Result<Nvrtc, NvrtcError> {
    Nvrtc::load(None).or_else(|error| match libtorch_folder() {
        Some(folder) => Nvrtc::load(Some(&folder.join(PACKAGED_NVRTC))).map_err(|_| error),
        None => Err(error),
    })
}

fn failed(error: impl std::fmt::Display) -> BoardError {
    BoardError(error.to_string())
}

impl Board for GpuBoard {
    type Graph = Graph;
    type Pinned = Pinned;
    type Event = Event;

    fn describe(&self) -> String {
        format!("{} ({})", self.gpu.name(), self.gpu.architecture())
    }

    fn processors(&self) -> usize {
        self.gpu.processors()
    }

    fn memory(&self) -> Result<(u64, u64), BoardError> {
        self.gpu.memory().map_err(failed)
    }

    fn use_here(&mut self) -> Result<(), BoardError> {
        self.gpu.use_here().map_err(failed)
    }

    fn alloc(&mut self, bytes: usize) -> Result<u64, BoardError> {
        let memory = Memory::new(&self.gpu, bytes).map_err(failed)?;
        let address = memory.address();
        self.memory.insert(address, memory);
        Ok(address)
    }

    unsafe fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), BoardError> {
        let (&start, memory) =
            self.memory.range_mut(..=to).next_back().ok_or_else(|| failed("no memory there"))?;
        memory.write((to - start) as usize, bytes).map_err(failed)
    }

    fn synchronize(&mut self) -> Result<(), BoardError> {
        self.gpu.synchronize().map_err(failed)
    }

    unsafe fn launch<A: Arguments>(&mut self, launch: &Launch, arguments: &A) -> Result<(), BoardError> {
        // SAFETY: the caller vouches for it.
        unsafe { self.modules[&launch.family].launch(&self.stream, launch, arguments) }
            .map_err(|error| BoardError(format!("{}: {error}", launch.kernel)))
    }

    unsafe fn multiply(&mut self, product: &Product) -> Result<(), BoardError> {
        // SAFETY: the caller vouches for it.
        unsafe { self.torch.multiply(product, self.number) }.map_err(failed)
    }

    unsafe fn copy(&mut self, from: u64, to: u64, len: usize) -> Result<(), BoardError> {
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy(from, to, len) }.map_err(failed)
    }

    fn pinned(&mut self, len: usize) -> Result<Pinned, BoardError> {
        Pinned::new(&self.gpu, len).map_err(failed)
    }

    unsafe fn upload(&mut self, from: &mut Pinned, bytes: &[u8], to: u64) -> Result<(), BoardError> {
        from.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy_in(from, bytes.len(), to) }.map_err(failed)
    }

    unsafe fn download(&mut self, from: u64, len: usize, to: &mut Pinned) -> Result<(), BoardError> {
        // SAFETY: the caller vouches for it.
        unsafe { self.stream.copy_out(from, len, to) }.map_err(failed)
    }

    fn read(&self, pinned: &Pinned, len: usize) -> Vec<u8> {
        pinned.as_slice()[..len].to_vec()
    }

    fn event(&mut self) -> Result<Event, BoardError> {
        Event::new(&self.gpu).map_err(failed)
    }

    fn record(&mut self, event: &mut Event) -> Result<(), BoardError> {
        self.stream.record(event).map_err(failed)
    }

    fn wait(&mut self, event: &Event) -> Result<(), BoardError> {
        event.wait().map_err(failed)
    }

    fn milliseconds(&self, from: &Event, to: &Event) -> Result<f32, BoardError> {
        to.milliseconds_since(from).map_err(failed)
    }

    fn begin_capture(&mut self) -> Result<(), BoardError> {
        self.recording = Some(self.torch.begin_capture().map_err(failed)?);
        Ok(())
    }

    fn end_capture(&mut self) -> Result<Graph, BoardError> {
        let recording = self.recording.take().ok_or_else(|| failed("nothing is being recorded"))?;
        recording.end().map_err(failed)
    }

    fn replay(&mut self, graph: &Graph) -> Result<(), BoardError> {
        graph.replay().map_err(failed)
    }
}
