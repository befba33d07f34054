//! The API over a real unix socket, against a stub of the owner.

mod fixture;
mod reading;
mod sockets;
mod watching;
