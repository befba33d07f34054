//! The API over a real unix socket, against a stub of the owner.

mod commands;
mod fixture;
mod reading;
mod sockets;
mod watching;
