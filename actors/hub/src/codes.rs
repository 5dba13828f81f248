//! Error codes of the hub.

pub(crate) use hivekeep_kernel::codes::*;

hivekeep_kernel::codes! {
    /// The hub may not listen at this address.
    HUB_ADDRESS_REFUSED = "hub_address_refused" {
        cause: "The address is not the operator's `hub.bind`, and only operators choose another; one that others reach needs TLS.",
        next: "Call ws_start without `addr`, or ask the operator.",
    }
    /// The hub cannot listen.
    HUB_CANNOT_LISTEN = "hub_cannot_listen" {
        cause: "The port is in use, or the address is not one of this host, or the certificate cannot be read.",
        next: "Choose another port, or look at `hivekeep logs`.",
    }
    /// The channel is none, or is not for this credential.
    HUB_CHANNEL_REFUSED = "hub_channel_refused" {
        cause: "The name is not one of `events`, `process:ID`, `team:ID`, `ingestions`, `ingestion:COLLECTION` and `pages`; it is followed already; or the process is of another user's session.",
        next: "Name another channel; `process_list` shows a session's processes.",
    }
    /// The client is subscribed already, or to as many channels as it may be.
    HUB_TOO_MANY_CHANNELS = "hub_too_many_channels" {
        cause: "`hub.max_channels` is reached, or the channel is followed already.",
        next: "Unsubscribe from a channel first.",
    }
}
