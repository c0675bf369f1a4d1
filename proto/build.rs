//! Compiles `firstlight/v1/*.proto` without a system protoc and keeps the descriptor set for reflection.
use std::{env, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 4] = [
    "firstlight/v1/inference.proto",
    "firstlight/v1/engine.proto",
    "firstlight/v1/telemetry.proto",
    "firstlight/v1/admin.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("firstlight_descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Budgets are also written by hand: as JSON in files, with the field names of the proto.
        .type_attribute("firstlight.v1.Budget", "#[derive(serde::Serialize, serde::Deserialize)]")
        .type_attribute("firstlight.v1.Budget", "#[serde(default, deny_unknown_fields)]")
        .compile_fds(descriptors)?;
    Ok(())
}
