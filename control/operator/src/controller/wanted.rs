//! What a part is to be like, as the object says that has it.

use trieste_control::api::FabricSpec;

use crate::order::{Part, Tkestack, Upstream, Wanted};
use crate::source::{Content, Source};
use crate::translate::tkestack;

/// Returns what a part is to be like.
pub(super) fn wanted(source: &Source, part: Part, all: &[Source]) -> Wanted {
    match &source.content {
        Content::Fabric(fabric) => Wanted::Fabric(Box::new(of_part(&fabric.spec, part))),
        Content::Broker(spec) => Wanted::Upstream(Upstream::Broker(spec.clone())),
        Content::Submariner(spec) => {
            let beside = all.iter().filter(|other| other.wants(Part::ServiceDiscovery));
            let mut beside = beside.filter_map(|other| match &other.content {
                Content::ServiceDiscovery(spec) => Some(spec.clone()),
                Content::Fabric(_) | Content::Broker(_) | Content::Submariner(_) | Content::Tkestack(_) => {
                    None
                }
            });
            let beside = beside.find(|_| spec.service_discovery_enabled != Some(true));
            Wanted::Upstream(Upstream::Member(spec.clone(), beside))
        }
        Content::ServiceDiscovery(spec) => Wanted::Upstream(Upstream::ServiceDiscovery(spec.clone())),
        Content::Tkestack(spec) => {
            let publishes_config_map = part == Part::Broker && source.publishes_config_map();
            Wanted::Tkestack(Tkestack { spec: tkestack::of_part(spec, part), publishes_config_map })
        }
    }
}

/// Returns what of a spec a part goes by: a change of the others does not concern it.
fn of_part(spec: &FabricSpec, part: Part) -> FabricSpec {
    match part {
        Part::Broker => FabricSpec { broker_config: spec.broker_config.clone(), ..FabricSpec::default() },
        Part::Member => FabricSpec { join_config: spec.join_config.clone(), ..FabricSpec::default() },
        // Its ports are those of the member.
        Part::Cloud => FabricSpec {
            cloud_prepare_config: spec.cloud_prepare_config.clone(),
            join_config: spec.join_config.clone(),
            ..FabricSpec::default()
        },
        Part::ServiceDiscovery => FabricSpec::default(),
    }
}
