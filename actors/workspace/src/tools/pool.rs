//! Looking at the warm pool. hivekeep's own.

use hivekeep_kernel::tools;

use crate::{
    api::pool::{PoolReport, PoolStatus},
    workspaces::Workspaces,
};

tools! { pub FAMILY: "warm pool" for Workspaces, singleton workspaces;
    pool_status: PoolStatus => PoolReport = Workspaces::pool_report {
        title: "Show the warm pool", effect: Read,
    };
}
