//! The family against providers of the tests' own, over a real journal.

mod budgets;
mod configuration;
mod failures;
mod fake;
mod names;
mod odd_answers;
mod queues;
mod relay;
mod scores;
mod stage;
mod text_tools;
mod tools;
mod wires;
