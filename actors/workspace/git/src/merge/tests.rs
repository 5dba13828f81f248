//! Merges between repositories of this host, with its own git.

mod cut_short;
mod generated;
mod histories;
mod left_alone;
mod mixed;
mod place;
mod refusals;
