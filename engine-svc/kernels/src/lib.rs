//! CPU kernels of the engine: thread pool, linears, attention, norms; no libtorch
