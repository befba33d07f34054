//! The API over a real unix socket, against a stub of the owner.

mod checks;
mod cleanup;
mod commands;
mod fixture;
mod reading;
mod smart;
mod sockets;
mod storage;
mod volumes;
mod watching;
