//! `cargo bench -p firstlight-kernels [-- THREADS [FILTER [ISA]]]`: what this machine can do, and how much
//! of it the kernels reach on the shapes of SmolLM2-135M.
//!
//! FILTER is part of a line's beginning, such as `linears Q8_0` or `step`; ISA a level of instruction set, such
//! as `avx512`, where not the best. Times are medians; on a shared machine compare within one run only.

mod ceilings;
mod linears;
mod step;
mod stopwatch;
mod wide;

use firstlight_kernels::isa::Isa;
use firstlight_kernels::pool::Pool;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(cores);
    let filter = arguments.next().unwrap_or_default();
    let isa = arguments.next().map_or_else(Isa::detect, |name| {
        let named = Isa::ALL.iter().copied().find(|isa| isa.to_string() == name);
        named.unwrap_or_else(|| panic!("no instruction set {name}; there are {:?}", Isa::ALL))
    });
    let pool = Pool::with_isa(threads, isa);
    println!("{} threads, {}", pool.threads(), pool.isa());
    let ceilings = ceilings::measure(&pool);
    linears::print(&pool, &ceilings, &filter);
    wide::print(&pool, &ceilings, &filter);
    step::print(&pool, &filter);
}
