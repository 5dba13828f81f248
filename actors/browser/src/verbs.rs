//! What is done with a page: a file for each tool.

pub(crate) mod click;
pub(crate) mod console;
pub(crate) mod eval;
pub(crate) mod navigate;
pub(crate) mod query;
pub(crate) mod screenshot;
pub(crate) mod snapshot;
pub(crate) mod wait;
pub(crate) mod write;
