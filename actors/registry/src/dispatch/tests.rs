mod admission;
mod fate;
mod internal;
mod large;
mod order;
mod refusals;
