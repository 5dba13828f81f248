mod admission;
mod fate;
mod order;
mod refusals;
