//! Services of the own cluster: packets for them go straight to a node that has a ready back end.
//!
//! ```text
//!   after the classification (and out2in) of an inbound packet
//!        │ destination in the service networks?
//!        ├─ no ─────────────────────────────────────────────────────────────▶ TUN
//!        └─ address and port known? ─ no: kube-proxy of this node's kernel ─▶ TUN
//!               │ the flow's node (pinned, else Maglev)
//!               ├─ this one ─▶ TUN, and this node's route agent translates
//!               └─ another ──▶ VXLAN, VNI 100, from the cable's own socket ─▶ that node's route agent translates
//! ```
//!
//! Every gateway picks alike from the same catalogue, so that it does not matter by which gateway the packets of a flow
//! come in, or by which their answers leave: the only connection tracking is that of the back end's node.

mod deliver;
mod frame;
mod maglev;
mod pieces;
mod pins;
mod table;
mod target;

pub(crate) use deliver::{Delivered, Delivery};
pub use table::{Backends, Frontend, ServiceNode, Services, ServicesBuilder};
