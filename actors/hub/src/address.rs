//! Addresses that ws_start is asked for: `host:port`, or `:port` for the configured host.

use std::net::SocketAddr;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::ListenerOptions;

use crate::codes;

/// Address that a caller gets: the configured one, or, for an operator, another.
///
/// # Errors
/// `invalid_input`, `hub_address_refused`.
pub(crate) fn wanted(
    options: &ListenerOptions,
    asked: Option<&str>,
    operator: bool,
) -> Result<SocketAddr, ToolError> {
    let refused = |why: String| ToolError::new(Layer::Policy, codes::HUB_ADDRESS_REFUSED, why);
    let own = options.address().map_err(refused)?;
    let Some(asked) = asked.map(str::trim).filter(|asked| !asked.is_empty()) else {
        return Ok(own);
    };
    let address = match asked.strip_prefix(':') {
        Some(port) => port.parse().map(|port| SocketAddr::new(own.ip(), port)).ok(),
        None => match asked.strip_prefix("localhost:") {
            Some(port) => port.parse().map(|port| SocketAddr::from(([127, 0, 0, 1], port))).ok(),
            None => asked.parse().ok(),
        },
    };
    let Some(address) = address else {
        let shown: String = asked.chars().take(80).collect();
        return Err(ToolError::invalid(format!("`{shown}` is not a valid address"))
            .next("give `:8080` or `127.0.0.1:8080`"));
    };
    if address == own || address.port() == 8080 && asked == DEFAULT {
        return Ok(own);
    }
    if !operator {
        let why = format!("{address} is not the address that the operator configured, {own}");
        return Err(refused(why).next("call ws_start without `addr`"));
    }
    options.reachable(address).map_err(refused)?;
    Ok(address)
}

/// Address of a call that names none: the configured one, wherever that is.
pub(crate) const DEFAULT: &str = ":8080";
