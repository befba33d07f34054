//! Rules for requests: names, sizes, filesystems, options, access modes and paths. Pure: values in,
//! values or `ProvisionError::InvalidArgument` (with the request's field) out.

pub mod access;
pub mod filesystem;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod paths;
pub mod sizes;
