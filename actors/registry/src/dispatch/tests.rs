mod admission;
mod approvals;
mod contexts;
mod fate;
mod internal;
mod large;
mod order;
mod refusals;
