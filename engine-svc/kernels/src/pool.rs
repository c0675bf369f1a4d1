//! The one thread pool: fork, run a closure on every thread, join.
//!
//! Between jobs a worker spins for a bounded time, then parks, so that layers follow each other
//! within a microsecond while an idle engine uses no CPU. A dispatch allocates nothing.
//!
//! Contract of the `unsafe` here: the job slot is written only by the caller, before it advances the
//! epoch, and read only by workers between seeing that epoch and adding themselves to `done`; the
//! caller does not leave `run`, not even by unwinding, until every worker has done so.

use std::any::Any;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crate::buffer::Buffer;
use crate::disjoint::SharedMut;
use crate::isa::Isa;

/// Turns of the spin loop before parking: some tens of microseconds, a few times the cost of waking.
const SPIN_TURNS: u32 = 2_000;

/// Work below this many elements is not worth waking a second thread for.
pub(crate) const INLINE_ELEMENTS: usize = 8_192;

/// A pool of threads that runs one job at a time. The calling thread is thread 0.
///
/// A pool belongs to the thread that drives the forwards (`Send`, not `Sync`); it also owns the
/// scratch memory of the kernels, and the instruction set they use.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    isa: Isa,
    running: Cell<bool>,
    parts: Box<[Line<Part>]>,
    scratch: RefCell<Buffer<u8>>,
    alone: Alone,
}

/// For each thread of a pool that has others a pool of that thread alone.
struct Alone(Box<[Line<Pool>]>);

// SAFETY: `share_apart` hands each of them to the thread of its number only.
unsafe impl Sync for Alone {}

impl Alone {
    fn of(&self, thread: usize) -> &Pool {
        &self.0[thread].0
    }
}

struct Shared {
    epoch: Line<AtomicUsize>,
    done: Line<AtomicUsize>,
    parked: Line<AtomicUsize>,
    caller_parked: AtomicBool,
    caller: Mutex<Option<Thread>>,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    job: UnsafeCell<Option<Job>>,
}

/// Kept on a cache line of its own.
#[repr(align(128))]
struct Line<T>(T);

/// Items of a shared job that one thread has not taken yet: first and end in one word.
#[derive(Default)]
struct Part(AtomicU64);

impl Part {
    fn set(&self, first: usize, end: usize) {
        assert!(u32::try_from(end).is_ok(), "{end} items in one job");
        self.0.store((first as u64) << 32 | end as u64, Ordering::Relaxed);
    }

    fn take_first(&self) -> Option<usize> {
        self.take(|first, end| (first + 1, end)).map(|(first, _)| first)
    }

    fn take_last(&self) -> Option<usize> {
        self.take(|first, end| (first, end - 1)).map(|(_, end)| end - 1)
    }

    /// Replaces the part by a smaller one if it is not empty, and returns what it was.
    fn take(&self, shrink: impl Fn(usize, usize) -> (usize, usize)) -> Option<(usize, usize)> {
        let split = |word: u64| ((word >> 32) as usize, (word & 0xffff_ffff) as usize);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let (first, end) = split(word);
            let (first, end) = (first < end).then(|| shrink(first, end))?;
            Some((first as u64) << 32 | end as u64)
        });
        taken.ok().map(split)
    }
}

#[derive(Clone, Copy)]
struct Job {
    closure: *const (),
    call: unsafe fn(*const (), usize),
}

// SAFETY: the job slot is handed over by the epoch, see the contract at the top.
unsafe impl Sync for Shared {}
// SAFETY: the pointers in the job slot are only followed while their closure, which is Sync, lives.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` threads in all (at least one), with the best instruction set found.
    pub fn new(threads: usize) -> Pool {
        Pool::with_isa(threads, Isa::detect())
    }

    /// A pool whose kernels use the given instruction set.
    ///
    /// # Panics
    /// If this machine does not have it.
    pub fn with_isa(threads: usize, isa: Isa) -> Pool {
        assert!(isa.is_available(), "this machine has no {isa}");
        let shared = Arc::new(Shared {
            epoch: Line(AtomicUsize::new(0)),
            done: Line(AtomicUsize::new(0)),
            parked: Line(AtomicUsize::new(0)),
            caller_parked: AtomicBool::new(false),
            caller: Mutex::new(None),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
            job: UnsafeCell::new(None),
        });
        let last = threads.max(1) - 1;
        let workers = (1..=last)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name(format!("kernel-{index}"))
                    .spawn(move || worker(&shared, index, last))
                    .unwrap_or_else(|error| panic!("cannot start kernel thread {index}: {error}"))
            })
            .collect();
        Pool {
            shared,
            workers,
            isa,
            running: Cell::new(false),
            parts: (0..threads.max(1)).map(|_| Line(Part::default())).collect(),
            scratch: RefCell::new(Buffer::zeroed(0)),
            alone: Alone(match last {
                0 => Box::default(),
                _ => (0..=last).map(|_| Line(Pool::with_isa(1, isa))).collect(),
            }),
        }
    }

    /// Threads in all, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The instruction set of every kernel run on this pool.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `job(thread_index)` once on each thread and returns when all have finished.
    ///
    /// # Panics
    /// If called from inside a job; and with a job's own panic, after every thread has finished.
    pub fn run<F: Fn(usize) + Sync>(&self, job: F) {
        assert!(!self.running.replace(true), "a job must not start another on the same pool");
        let outcome = self.run_on_all(&job);
        self.running.set(false);
        if let Err(payload) = outcome {
            resume_unwind(payload);
        }
    }

    fn run_on_all<F: Fn(usize) + Sync>(&self, job: &F) -> thread::Result<()> {
        if self.workers.is_empty() {
            return catch_unwind(AssertUnwindSafe(|| job(0)));
        }
        let shared = &*self.shared;
        // SAFETY: no worker reads the slot until the epoch advances.
        unsafe { *shared.job.get() = Some(Job { closure: (&raw const *job).cast(), call: call::<F> }) };
        shared.done.0.store(0, Ordering::Relaxed);
        shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        if shared.parked.0.load(Ordering::SeqCst) != 0 {
            for worker in &self.workers {
                worker.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| job(0)));
        shared.wait_for_workers(self.workers.len());
        let theirs = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        theirs.map_or(own, Err)
    }

    /// Splits `0..items` into one contiguous range per thread; small work stays on the caller.
    pub fn split<F: Fn(Range<usize>) + Sync>(&self, items: usize, elements_per_item: usize, job: F) {
        let threads = self.threads();
        if threads == 1 || items <= 1 || items * elements_per_item < INLINE_ELEMENTS {
            if items > 0 {
                job(0..items);
            }
            return;
        }
        self.run(|thread| {
            let range = items * thread / threads..items * (thread + 1) / threads;
            if !range.is_empty() {
                job(range);
            }
        });
    }

    /// Runs `job(item)` for each of `0..items`. Each thread takes its own part from the front, in order; one
    /// that is done early takes from the end of another's.
    ///
    /// # Panics
    /// If there are 2³² items or more.
    pub fn share<F: Fn(usize) + Sync>(&self, items: usize, job: F) {
        self.share_with(items, |_| (), |(), item| job(item));
    }

    /// As [`Pool::share`], with `job(state, item)` for work that keeps something per thread, made there by
    /// `begin(thread_index)` before its first item.
    pub(crate) fn share_with<S>(
        &self,
        items: usize,
        begin: impl Fn(usize) -> S + Sync,
        job: impl Fn(&mut S, usize) + Sync,
    ) {
        let threads = self.threads();
        if threads == 1 || items <= 1 {
            let mut state = begin(0);
            return (0..items).for_each(|item| job(&mut state, item));
        }
        for (thread, part) in self.parts.iter().enumerate() {
            part.0.set(items * thread / threads, items * (thread + 1) / threads);
        }
        self.run(|thread| {
            let mut state = begin(thread);
            while let Some(item) = self.parts[thread].0.take_first() {
                job(&mut state, item);
            }
            for other in 1..threads {
                while let Some(item) = self.parts[(thread + other) % threads].0.take_last() {
                    job(&mut state, item);
                }
            }
        });
    }

    /// As [`Pool::share`], with `job(pool, item)`: what the job does with that pool is done by its thread alone, in
    /// scratch memory of its own.
    pub(crate) fn share_apart(&self, items: usize, job: impl Fn(&Pool, usize) + Sync) {
        if self.threads() == 1 {
            return (0..items).for_each(|item| job(self, item));
        }
        let alone = &self.alone;
        self.share_with(items, |thread| thread, |thread, item| job(alone.of(*thread), item));
    }

    /// Runs `job(index, row)` for each row of `width` elements, rows split over the threads.
    pub fn for_rows<F: Fn(usize, &mut [f32]) + Sync>(&self, data: &mut [f32], width: usize, job: F) {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} is not rows of {width}", data.len());
        let rows = data.len() / width;
        let data = SharedMut::new(data);
        self.split(rows, width, |range| {
            for index in range {
                // SAFETY: `split` gives each row to one thread only.
                job(index, unsafe { data.slice(index * width, width) });
            }
        });
    }

    /// Lends the kernels' scratch memory, at least `bytes` long, its contents arbitrary.
    pub(crate) fn with_scratch<R>(&self, bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut scratch = self.scratch.borrow_mut();
        scratch.reserve_zeroed(bytes);
        work(&mut scratch[..bytes])
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.epoch.0.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches its job's panics, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

unsafe fn call<F: Fn(usize) + Sync>(closure: *const (), thread: usize) {
    // SAFETY: `closure` was made from a `&F` that outlives the job.
    unsafe { (*closure.cast::<F>())(thread) }
}

fn worker(shared: &Shared, index: usize, workers: usize) {
    let mut seen = 0;
    loop {
        shared.wait_for_epoch_after(seen);
        seen = seen.wrapping_add(1);
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the epoch has advanced, so the slot holds this epoch's job.
        let job = unsafe { *shared.job.get() };
        if let Some(Job { closure, call }) = job {
            // SAFETY: the caller keeps the closure alive until this worker is counted done.
            let outcome = catch_unwind(|| unsafe { call(closure, index) });
            if let Err(payload) = outcome {
                *shared.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(payload);
            }
        }
        shared.count_done(workers);
    }
}

impl Shared {
    fn wait_for_epoch_after(&self, seen: usize) {
        for _ in 0..SPIN_TURNS {
            if self.epoch.0.load(Ordering::Acquire) != seen {
                return;
            }
            spin_loop();
        }
        self.parked.0.fetch_add(1, Ordering::SeqCst);
        while self.epoch.0.load(Ordering::SeqCst) == seen {
            thread::park();
        }
        self.parked.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn count_done(&self, workers: usize) {
        let last = self.done.0.fetch_add(1, Ordering::SeqCst) + 1 == workers;
        if last && self.caller_parked.load(Ordering::SeqCst) {
            let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(caller) = &*caller {
                caller.unpark();
            }
        }
    }

    fn wait_for_workers(&self, workers: usize) {
        for _ in 0..SPIN_TURNS {
            if self.done.0.load(Ordering::Acquire) == workers {
                return;
            }
            spin_loop();
        }
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        self.caller_parked.store(true, Ordering::SeqCst);
        while self.done.0.load(Ordering::SeqCst) != workers {
            thread::park();
        }
        self.caller_parked.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_runs_every_job_once() {
        for threads in 1..=4 {
            let pool = Pool::new(threads);
            let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..2_000 {
                pool.run(|thread| {
                    counts[thread].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 2_000));
        }
    }

    #[test]
    fn a_parked_pool_wakes_up() {
        let pool = Pool::new(2);
        for _ in 0..5 {
            while pool.shared.parked.0.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let ran = AtomicUsize::new(0);
            pool.run(|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 2);
        }
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_still_works() {
        let pool = Pool::new(3);
        for victim in 0..3 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(|thread| assert_ne!(thread, victim, "thread {thread} fails"));
            }));
            assert!(outcome.is_err());
            let ran = AtomicUsize::new(0);
            pool.run(|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 3);
        }
    }

    #[test]
    fn a_thread_that_is_done_takes_over_from_one_that_is_not() {
        let pool = Pool::new(2);
        let others_left = AtomicUsize::new(99);
        pool.share(100, |item| {
            if item == 0 {
                while others_left.load(Ordering::Relaxed) > 0 {
                    thread::yield_now();
                }
            } else {
                others_left.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }

    #[test]
    fn split_and_share_cover_every_item_once() {
        for threads in 1..=3 {
            let pool = Pool::new(threads);
            for items in [0, 1, 2, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
                let count = |item: usize| {
                    counts[item].fetch_add(1, Ordering::Relaxed);
                };
                pool.split(items, INLINE_ELEMENTS, |range| range.for_each(count));
                pool.share(items, count);
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 2));
            }
        }
    }
}
