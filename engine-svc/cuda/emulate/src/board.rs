//! A [`Board`] of emulated kernels.
//!
//! What is queued runs only when somebody waits for it, so that whoever reads before the event behind a copy has
//! passed, or writes to memory of the host that a copy still reads, gets something else than they thought. Work over
//! memory that was written and not waited for is refused. Graphs run what they recorded, with the addresses of that
//! time. Memory is poisoned, and every buffer has guards around it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::f32::consts::PI;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use firstlight_cuda::arguments::Arguments;
use firstlight_cuda::board::{Board, BoardError, Product};
use firstlight_cuda::launch::Launch;
use firstlight_cuda::source::{Family, Module, Number};

use crate::kernels::Kernels;
use crate::machine::{KernelFn, machine};

/// Bytes of host memory that copies go to and come from, at the time when they run.
#[derive(Debug, Clone)]
pub struct Pinned(Arc<Mutex<Vec<u8>>>);

impl Pinned {
    fn with<R>(&self, use_it: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What has run: how many times each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ran {
    /// By name.
    pub kernels: BTreeMap<&'static str, usize>,
    /// By rows, and whether a bias was added.
    pub multiplications: BTreeMap<(usize, bool), usize>,
}

#[derive(Debug, Clone)]
enum Work {
    /// The arguments by value.
    Launch(KernelFn, Launch, Vec<u64>),
    Multiply(Product),
    Copy {
        from: u64,
        to: u64,
        len: usize,
    },
    Upload {
        from: Pinned,
        to: u64,
        len: usize,
    },
    Download {
        from: u64,
        to: Pinned,
        len: usize,
    },
    /// An event, by its number.
    Event(u64),
}

/// Work that was recorded. It must not outlive the board, whose kernels it runs.
#[derive(Debug)]
pub struct Graph {
    work: Vec<Work>,
    board: Weak<()>,
}

impl Drop for Graph {
    fn drop(&mut self) {
        let alive = self.board.strong_count() > 0 || thread::panicking();
        assert!(alive, "a graph outlives the kernels that it runs");
    }
}

/// An emulated GPU with the kernels for one number format and head dimension.
#[derive(Debug)]
pub struct EmulatedBoard {
    number: Number,
    kernels: HashMap<Family, Kernels>,
    bytes: u64,
    used: u64,
    allocated: Vec<u64>,
    queue: VecDeque<Work>,
    recording: Option<Vec<Work>>,
    events: u64,
    passed: u64,
    /// Something was written that nobody has waited for.
    writing: bool,
    seed: u64,
    ran: Arc<Mutex<Ran>>,
    failed: Option<BoardError>,
    alive: Arc<()>,
}

impl EmulatedBoard {
    /// With `bytes` of memory. Threads run in an order of `seed`.
    pub fn new(number: Number, head_dim: usize, bytes: u64, seed: u64) -> Self {
        let kernels =
            Family::ALL.map(|family| (family, Kernels::build(&Module { family, number, head_dim })));
        Self {
            number,
            kernels: kernels.into_iter().collect(),
            bytes,
            used: 0,
            allocated: Vec::new(),
            queue: VecDeque::new(),
            recording: None,
            events: 0,
            passed: 0,
            writing: false,
            seed,
            ran: Arc::default(),
            failed: None,
            alive: Arc::default(),
        }
    }

    /// What has run so far, to be looked at later.
    pub fn ran(&self) -> Arc<Mutex<Ran>> {
        Arc::clone(&self.ran)
    }

    fn queue(&mut self, work: Work) -> Result<(), BoardError> {
        self.failed.clone().map_or(Ok(()), Err)?;
        if self.writing && matches!(work, Work::Launch(..) | Work::Multiply(_) | Work::Copy { .. }) {
            return Err(BoardError("work over memory whose writing nobody has waited for".to_owned()));
        }
        match (&mut self.recording, &work) {
            (Some(_), Work::Upload { .. } | Work::Download { .. } | Work::Event(_)) => {
                return Err(BoardError("a copy to or from the host, or an event, in a graph".to_owned()));
            }
            (Some(recording), _) => recording.push(work),
            (None, _) => self.queue.push_back(work),
        }
        Ok(())
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), BoardError> {
        while !done(self) {
            let work =
                self.queue.pop_front().ok_or_else(|| BoardError("an event that never passes".into()))?;
            if let Err(error) = self.run(&work) {
                self.failed = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn run(&mut self, work: &Work) -> Result<(), BoardError> {
        self.seed += 1;
        let mut ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: whoever queued it vouched for it.
        unsafe {
            match work {
                Work::Launch(kernel, launch, arguments) => {
                    *ran.kernels.entry(launch.kernel).or_default() += 1;
                    machine()
                        .launch(*kernel, launch, arguments.as_ptr().cast(), self.seed)
                        .map_err(BoardError)?;
                }
                Work::Multiply(product) => {
                    *ran.multiplications.entry((product.rows, product.bias.is_some())).or_default() += 1;
                    multiply(self.number, product);
                }
                Work::Copy { from, to, len } => {
                    ptr::copy_nonoverlapping(*from as *const u8, *to as *mut u8, *len);
                }
                Work::Upload { from, to, len } => {
                    from.with(|bytes| ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, *len));
                }
                Work::Download { from, to, len } => {
                    to.with(|bytes| ptr::copy_nonoverlapping(*from as *const u8, bytes.as_mut_ptr(), *len));
                }
                Work::Event(event) => self.passed = *event,
            }
        }
        Ok(())
    }
}

impl Board for EmulatedBoard {
    type Graph = Graph;
    type Pinned = Pinned;
    type Event = u64;

    fn describe(&self) -> String {
        "emulation".to_owned()
    }

    fn processors(&self) -> usize {
        3
    }

    fn memory(&self) -> Result<(u64, u64), BoardError> {
        Ok((self.bytes.saturating_sub(self.used), self.bytes))
    }

    fn use_here(&mut self) -> Result<(), BoardError> {
        Ok(())
    }

    fn alloc(&mut self, bytes: usize) -> Result<u64, BoardError> {
        self.used += bytes as u64;
        if self.used > self.bytes {
            return Err(BoardError(format!("out of memory: {} of {} bytes", self.used, self.bytes)));
        }
        let address = machine().alloc(bytes, &format!("allocation {}", self.allocated.len()), false) as u64;
        self.allocated.push(address);
        Ok(address)
    }

    unsafe fn write(&mut self, to: u64, bytes: &[u8]) -> Result<(), BoardError> {
        // SAFETY: the caller vouches for it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        self.writing = true;
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), BoardError> {
        self.writing = false;
        self.run_until(|board| board.queue.is_empty())
    }

    unsafe fn launch<A: Arguments>(&mut self, launch: &Launch, arguments: &A) -> Result<(), BoardError> {
        let kernel = self.kernels[&launch.family].kernel(launch);
        let mut words = vec![0_u64; size_of::<A>().div_ceil(8)];
        // SAFETY: as many bytes of both; arguments are plain numbers.
        unsafe {
            ptr::copy_nonoverlapping(
                (&raw const *arguments).cast::<u8>(),
                words.as_mut_ptr().cast(),
                size_of::<A>(),
            );
        }
        self.queue(Work::Launch(kernel, *launch, words))
    }

    unsafe fn multiply(&mut self, product: &Product) -> Result<(), BoardError> {
        self.queue(Work::Multiply(*product))
    }

    unsafe fn copy(&mut self, from: u64, to: u64, len: usize) -> Result<(), BoardError> {
        self.queue(Work::Copy { from, to, len })
    }

    fn pinned(&mut self, len: usize) -> Result<Pinned, BoardError> {
        Ok(Pinned(Arc::new(Mutex::new(vec![0xFF; len]))))
    }

    unsafe fn upload(&mut self, from: &mut Pinned, bytes: &[u8], to: u64) -> Result<(), BoardError> {
        from.with(|pinned| pinned[..bytes.len()].copy_from_slice(bytes));
        self.queue(Work::Upload { from: from.clone(), to, len: bytes.len() })
    }

    unsafe fn download(&mut self, from: u64, len: usize, to: &mut Pinned) -> Result<(), BoardError> {
        self.queue(Work::Download { from, to: to.clone(), len })
    }

    fn read(&self, pinned: &Pinned, len: usize) -> Vec<u8> {
        pinned.with(|bytes| bytes[..len].to_vec())
    }

    fn event(&mut self) -> Result<u64, BoardError> {
        Ok(0)
    }

    fn record(&mut self, event: &mut u64) -> Result<(), BoardError> {
        self.events += 1;
        *event = self.events;
        self.queue(Work::Event(*event))
    }

    fn wait(&mut self, event: &u64) -> Result<(), BoardError> {
        self.run_until(|board| board.passed >= *event)
    }

    fn milliseconds(&self, from: &u64, to: &u64) -> Result<f32, BoardError> {
        match self.passed < *from.max(to) {
            true => Err(BoardError("an event that has not passed".to_owned())),
            false => Ok((to - from) as f32),
        }
    }

    fn begin_capture(&mut self) -> Result<(), BoardError> {
        self.recording = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&mut self) -> Result<Graph, BoardError> {
        let work = self.recording.take();
        let work = work.ok_or_else(|| BoardError("nothing is being recorded".to_owned()))?;
        Ok(Graph { work, board: Arc::downgrade(&self.alive) })
    }

    fn replay(&mut self, graph: &Graph) -> Result<(), BoardError> {
        graph.work.iter().try_for_each(|work| self.queue(work.clone()))
    }
}

impl Drop for EmulatedBoard {
    fn drop(&mut self) {
        for &address in &self.allocated {
            // SAFETY: allocated by the machine, freed once; nothing runs any more.
            unsafe { (machine().free)(address as *mut _) };
        }
    }
}

/// Sums in 32 bits, as tensor cores do.
///
/// # Safety
/// The addresses are those of memory as large as the shapes say.
unsafe fn multiply(number: Number, product: &Product) {
    let Product { rows, outputs, inputs, .. } = *product;
    let wide = |bits: u16| number.widen(bits);
    // SAFETY: the caller's word.
    unsafe {
        let input = std::slice::from_raw_parts(product.input as *const u16, rows * inputs);
        let weight = std::slice::from_raw_parts(product.weight as *const u16, outputs * inputs);
        let weight: Vec<f32> = weight.iter().map(|&bits| wide(bits)).collect();
        for (row, x) in input.chunks_exact(inputs).enumerate() {
            let x: Vec<f32> = x.iter().map(|&bits| wide(bits)).collect();
            for (output, w) in weight.chunks_exact(inputs).enumerate() {
                let bias = product.bias.map_or(0.0, |bias| wide(*(bias as *const u16).add(output)));
                let sum = x.iter().zip(w).fold(0.0_f32, |sum, (x, w)| x.mul_add(*w, sum)) + bias;
                let sum = if product.gelu_tanh { gelu_tanh(sum) } else { sum };
                let at = row * outputs + output;
                match product.wide_out {
                    true => *(product.out as *mut f32).add(at) = sum,
                    false => *(product.out as *mut u16).add(at) = number.narrow(sum),
                }
            }
        }
    }
}

fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}
