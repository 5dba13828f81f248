//! Image port: what container images this host holds.

/// Container images of this host.
pub trait ImagePresence: Send + Sync {
    /// True if the image of a reference can be booted without a download, false if it cannot;
    /// `None` where that is not known.
    fn is_present(&self, reference: &str) -> Option<bool>;
}
