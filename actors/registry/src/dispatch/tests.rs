mod admission;
mod fate;
mod internal;
mod order;
mod refusals;
