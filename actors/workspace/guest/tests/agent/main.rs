//! The real daemon, spoken to over its Unix carrier.

mod ask;
mod client;
mod exec;
mod file_operations;
mod files;
mod guest;
mod hostile;
mod jobs;
mod link;
mod once;
mod processes;
mod sandbox;
mod storm;
mod streams;
mod tasks;
mod watches;
