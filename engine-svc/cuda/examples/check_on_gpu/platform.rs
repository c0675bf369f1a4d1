//! Kernels and memory on a real GPU, as `checks` want them. A device error ends the check that it comes in.

use std::marker::PhantomData;
use std::sync::OnceLock;

use firstlight_cuda::arguments::{Arguments, DevicePtr};
use firstlight_cuda::driver::{DriverError, Gpu, LoadedModule, Memory, Stream};
use firstlight_cuda::launch::Launch;
use firstlight_cuda::source::Module;

static GPU: OnceLock<Gpu> = OnceLock::new();

/// The GPU that everything runs on.
pub fn use_gpu(gpu: Gpu) {
    assert!(GPU.set(gpu).is_ok(), "one GPU");
}

pub fn gpu() -> &'static Gpu {
    GPU.get().expect("a GPU was opened")
}

/// A compiled module.
pub struct Kernels {
    module: Module,
    loaded: LoadedModule,
    stream: Stream,
}

impl Kernels {
    pub fn load(module: Module, cubin: &[u8]) -> Result<Self, DriverError> {
        let loaded = LoadedModule::load(gpu(), module.family, cubin)?;
        Ok(Self { module, loaded, stream: Stream::default_of(gpu()) })
    }

    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Runs a kernel; the hardware chooses the order of threads.
    pub fn launch<A: Arguments>(&self, launch: &Launch, arguments: &A, _seed: u64) -> Result<(), String> {
        // SAFETY: a kernel's name goes with its arguments' type in each check; addresses come from live buffers.
        let launched = unsafe { self.loaded.launch(&self.stream, launch, arguments) };
        launched.and_then(|()| gpu().synchronize()).map_err(|error| format!("{}: {error}", launch.kernel))
    }
}

/// `len` elements of `T`. Every byte is 0xFF until written.
pub struct Buf<T> {
    memory: Memory,
    element: PhantomData<T>,
}

impl<T: Copy> Buf<T> {
    pub fn output(len: usize, _name: &str) -> Self {
        Self::upload(&vec![0xFF; len * size_of::<T>()])
    }

    pub fn in_out(values: &[T], _name: &str) -> Self {
        // SAFETY: the checks' element types are numbers and structs of numbers, without padding.
        Self::upload(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) })
    }

    pub fn input(values: &[T], name: &str, _low: bool) -> Self {
        Self::in_out(values, name)
    }

    fn upload(bytes: &[u8]) -> Self {
        let memory = Memory::new(gpu(), bytes.len()).and_then(|mut memory| {
            memory.write(0, bytes)?;
            Ok(memory)
        });
        Self { memory: memory.unwrap_or_else(|error| panic!("{error}")), element: PhantomData }
    }

    pub fn device(&self) -> DevicePtr<T> {
        DevicePtr::at(self.memory.address())
    }

    pub fn read(&self) -> Vec<T> {
        let bytes = self.memory.download().unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: whole elements; any bytes are a value of the number types used here.
        bytes
            .chunks_exact(size_of::<T>())
            .map(|bytes| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
            .collect()
    }

    pub fn poison(&mut self) {
        self.memory.fill(0xFF).unwrap_or_else(|error| panic!("{error}"));
    }
}
