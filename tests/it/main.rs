//! The daemon and its doors, driven from outside: the real program, each test in
//! a home of its own.

mod approvals;
mod artifacts;
mod attach;
mod audit;
mod backup;
mod browser;
mod cli;
mod contract;
mod daemon;
mod e2b;
mod escapes;
mod home;
mod house;
mod http;
mod http_api;
mod hub;
mod knowledge;
mod mcp;
mod metrics;
mod models;
mod pictures;
mod places;
mod power;
mod pressure;
mod prompts;
mod resources;
mod rounds;
mod secrets;
mod sessions;
mod sources;
mod tasks;
mod toolsets;
mod unit;
mod vault;
mod wire;
