mod admission;
mod errand;
mod fate;
mod order;
mod refusals;
