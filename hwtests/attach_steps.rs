//! Each step that is done to the host for a volume, by the real processes on real loop devices,
//! filesystems and mounts: that it does what it says, twice as well as once, nothing to what is not
//! ours, and that one that hangs holds up no other.
mod support;

#[path = "attach_steps/blank.rs"]
mod blank;
#[path = "attach_steps/hung.rs"]
mod hung;
#[path = "attach_steps/life.rs"]
mod life;
#[path = "attach_steps/places.rs"]
mod places;
#[path = "attach_steps/stage.rs"]
mod stage;
