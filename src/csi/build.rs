//! Generates the gRPC code of other projects' services from proto/, with protox: no protoc is needed.

use std::path::PathBuf;

const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut foreign = protox::Compiler::new([PROTO])?;
    foreign.include_imports(true).include_source_info(true);
    foreign.open_files([
        "csi/v1/csi.proto",
        "podmon/v1/podmon.proto",
        "pluginregistration/v1/registration.proto",
        "withdrawal/v1/withdrawal.proto",
    ])?;
    tonic_prost_build::configure().compile_fds(foreign.file_descriptor_set())?;
    // For the test that holds names and numbers against the published ones.
    foreign.include_source_info(false);
    std::fs::write(out.join("foreign.bin"), foreign.encode_file_descriptor_set())?;
    Ok(())
}
