//! Generates the gRPC code and the descriptor set from proto/, with protox: no protoc is needed.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files([
            "diskvitals/v1/diskvitals.proto",
            "diskvitals/v1/volumes.proto",
        ])?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    // For reflection and canonical JSON: without the comments, which would only cost memory in the
    // daemon.
    compiler.include_source_info(false);
    std::fs::write(
        out.join("diskvitals.bin"),
        compiler.encode_file_descriptor_set(),
    )?;
    // Apart from ours: what is reflected is what is served.
    let mut foreign = protox::Compiler::new(["proto"])?;
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
    std::fs::write(
        out.join("foreign.bin"),
        foreign.encode_file_descriptor_set(),
    )?;
    Ok(())
}
