//! A toy actor behind a whole dispatcher: journal, sessions, registry, all real,
//! supervised as in the daemon. For this crate's tests and those of the doors.

pub mod stage;
pub mod toy;

pub use stage::Stage;
pub use toy::{Marks, Toy, ToyKeeper, toy_tools};
