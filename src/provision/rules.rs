//! Rules for requests: names, sizes, filesystems, options, access modes and paths. In: values. Out:
//! values, or `ProvisionError::InvalidArgument` with the request's field. The rules do no I/O.

pub mod access;
pub mod filesystem;
pub mod mkfs;
pub mod mount;
pub mod names;
pub mod paths;
pub mod sizes;
