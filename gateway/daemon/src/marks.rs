//! Marks of packets that the kernel routes by.

/// Mark of everything that cables send (design §3.12), inside [`OUTER_MARK_MASK`]: outside the bits of kube-proxy
/// (0xc000), Calico's default (0xffff0000 is configurable, 0x54 is not handed out), Cilium (0x0f00) and Globalnet
/// (0xc0000). A rule before all of ours sends what carries it to the main table.
pub const OUTER_MARK: u32 = 0x0054_0000;
/// The bits of [`OUTER_MARK`].
pub const OUTER_MARK_MASK: u32 = 0x00ff_0000;
