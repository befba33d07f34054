//! Generates the messages, the services and the descriptor set from proto/diskvitals, with protox: no
//! protoc is needed.

use std::path::PathBuf;

use prost::Message;

const PROTO: &str = "../../proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={PROTO}/diskvitals");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut compiler = protox::Compiler::new([PROTO])?;
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
    Ok(())
}
