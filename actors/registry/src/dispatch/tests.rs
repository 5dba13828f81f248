mod admission;
mod approvals;
mod fate;
mod internal;
mod large;
mod order;
mod refusals;
