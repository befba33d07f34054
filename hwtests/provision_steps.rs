//! Each step that is done to the host for a volume, by the real processes on real loop devices,
//! filesystems and mounts: that it does what it says, twice as well as once, nothing to what is not
//! ours, and that one that hangs holds up no other.

mod blank_devices;
mod fixture;
mod hung_disk;
mod lifecycle;
mod unsafe_paths;
