//! Rules for requests: names, sizes, filesystems, options, access modes and paths. Pure: values in,
//! values or `ProvisionError::InvalidArgument` (with the request's field) out.

pub(crate) mod access;
pub(crate) mod filesystem;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod sizes;
