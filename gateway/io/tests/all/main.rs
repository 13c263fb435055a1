//! Tests of devices and sockets against the kernel, in namespaces. Most need root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod esp;
#[expect(clippy::print_stdout, reason = "what is skipped is printed")]
mod skip;
mod support;
mod tcp;
mod tun;
mod udp;
mod udp_routes;
#[cfg(feature = "af-xdp")]
mod xdp;
