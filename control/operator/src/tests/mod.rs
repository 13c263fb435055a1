//! Translation and controller, over everything that the definition has.

mod cloud;
mod controller;
mod faults;
mod fields;
mod knitnet;
pub(crate) mod played;
mod tkestack;
mod upstream;
mod upstream_fields;

use trieste_control::runner::{Controller as _, QueueView};

use crate::controller::FabricController;
use crate::order::Order;

/// Returns what a controller at rest wants to be carried out.
fn orders(controller: &FabricController) -> Vec<Order> {
    let view = QueueView {
        outages: Vec::new(),
        unavailable: Vec::new(),
        next_writes: Vec::new(),
        closed: Vec::new(),
        hold: None,
        refused: Vec::new(),
        is_idle: true,
        leadership: None,
        writes: 0,
        sent: &[],
        events: 0,
        is_fenced: false,
    };
    controller.status(&view).orders
}
