//! Generates the gRPC code and the descriptor set from proto/, with protox: no protoc is needed.

use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(["diskvitals/v1/diskvitals.proto", "diskvitals/v1/volumes.proto"])?;
    let mut descriptors = compiler.file_descriptor_set();
    tonic_prost_build::configure().compile_fds(descriptors.clone())?;
    // For reflection and canonical JSON. Of the source information only our comments are kept: the
    // positions in the files would only cost memory in the daemon.
    for file in &mut descriptors.file {
        if !file.name().starts_with("diskvitals/") {
            file.source_code_info = None;
        }
        if let Some(source) = &mut file.source_code_info {
            source.location.retain(|at| at.leading_comments.is_some());
        }
    }
    std::fs::write(out.join("diskvitals.bin"), descriptors.encode_to_vec())?;
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
    std::fs::write(out.join("foreign.bin"), foreign.encode_file_descriptor_set())?;
    Ok(())
}
