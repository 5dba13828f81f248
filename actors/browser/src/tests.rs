//! The browser tools against Debian's Chromium, on pages of the tests' own.

mod acting;
mod attached;
mod ends;
mod kills;
mod network;
mod pages;
mod reading;
mod stage;
mod transfers;
mod waiting;
