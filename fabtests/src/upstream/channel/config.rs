//! `ChannelConfig`: the configuration of a channel.

use selvedge::OpFlags;

/// Maximum size of control messages.
pub(in crate::upstream) const CONTROL: usize = 1024;

/// The configuration of a channel.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::upstream) struct ChannelConfig {
    /// Whether messages are tagged; the tag of a message is its number.
    pub(in crate::upstream) tagged: bool,
    /// The size of the largest message, in bytes.
    pub(in crate::upstream) largest: usize,
    /// The maximum number of outstanding messages; 0 if each message waits for the one before.
    pub(in crate::upstream) window: usize,
    /// The sizes of the completion queues of sends and of receives; 0 for the default.
    pub(in crate::upstream) queues: [usize; 2],
    /// Whether counters replace completion queues.
    pub(in crate::upstream) counters: bool,
    /// Additional default flags of sends (`tx_attr.op_flags`).
    pub(in crate::upstream) flags: OpFlags,
}
