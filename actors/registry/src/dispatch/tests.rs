mod admission;
mod approvals;
mod fate;
mod internal;
mod order;
mod refusals;
