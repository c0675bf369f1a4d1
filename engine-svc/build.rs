//! Lets the programs find libtorch where it was found at build time, without LD_LIBRARY_PATH.

use std::env;

fn main() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let (Ok(_), Ok(libtorch)) = (env::var("CARGO_FEATURE_TORCH"), env::var("LIBTORCH")) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
    }
}
