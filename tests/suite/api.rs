//! Tests of the API over a real unix socket, with a stub of the owner.

mod caller_memory;
mod checks;
mod clean_orders;
mod cleanup;
mod commands;
mod fixture;
mod live;
mod reading;
mod smart;
mod sockets;
mod storage;
mod volumes;
mod watching;
