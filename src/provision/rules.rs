//! Rules for requests: names, sizes, filesystems, options, access modes and paths. In: values. Out:
//! values, or `ProvisionError::InvalidArgument` with the request's field. The rules do no I/O.

pub(crate) mod access;
pub(crate) mod filesystem;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod names;
pub(crate) mod paths;
pub(crate) mod sizes;
