//! Entry point: wiring only.
fn main() {}
