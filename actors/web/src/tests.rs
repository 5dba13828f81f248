//! The web tools against servers of the tests' own.

mod addresses;
mod contents;
mod family;
mod guests;
mod hostile;
mod robots;
mod searches;
mod sends;
mod server;
mod stage;
mod targets;
mod tls;
