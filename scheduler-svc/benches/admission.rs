//! Cost of admission per request.
fn main() {}
