//! What may be wished for: names, sizes, filesystems, options, access modes and paths. Pure: values
//! in, values or `Fault::Invalid` (with the name of the field as the request has it) out.

pub mod access;
pub mod filesystem;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod paths;
pub mod sizes;
