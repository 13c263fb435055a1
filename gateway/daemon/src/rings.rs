//! AF_XDP as the status shows it: how it was opened, and what the workers' rings count.

use trieste_control::admin::{XdpStatus, XdpStep, XdpWorker};
use trieste_io::{RingState, StepCause, StepDown, XdpCounters, XdpMode};

use crate::config::OuterIo;

/// The mode of a gateway whose outer packets all go through sockets.
const SOCKETS: &str = "sockets";

/// AF_XDP was wanted, and the sockets go on alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: XdpStatus,
    /// For people.
    pub(crate) reason: String,
}

impl Refused {
    /// Returns the refusal of an interface for one reason, before any mode was tried.
    pub(crate) fn whole(interface: &str, cause: StepCause, reason: &str) -> Self {
        let first = StepDown { mode: XdpMode::ZeroCopy, cause, reason: reason.to_owned() };
        Self::after(interface, &[first], reason)
    }

    /// Returns the refusal after these modes were tried.
    pub(crate) fn after(interface: &str, steps: &[StepDown], reason: &str) -> Self {
        let steps = steps.iter().map(shown).collect();
        let mode = SOCKETS.to_owned();
        let status = XdpStatus { interface: interface.to_owned(), mode, steps, ..XdpStatus::default() };
        Self { status, reason: reason.to_owned() }
    }

    /// Adds the modes that were not tried, since they would cost more than they save.
    pub(crate) fn by_choice(mut self, io: OuterIo) -> Self {
        let is_tried = |mode: XdpMode, steps: &[XdpStep]| steps.iter().any(|step| step.mode == mode.as_str());
        for mode in [XdpMode::Native, XdpMode::Generic] {
            if io == OuterIo::Auto && !is_tried(mode, &self.status.steps) {
                let reason = "it copies, which costs trains more than it saves single packets".to_owned();
                self.status.steps.push(shown(&StepDown { mode, cause: StepCause::NotWanted, reason }));
            }
        }
        self
    }
}

fn shown(step: &StepDown) -> XdpStep {
    let StepDown { mode, cause, reason } = step;
    XdpStep { mode: mode.as_str().to_owned(), cause: cause.as_str().to_owned(), reason: reason.clone() }
}

/// Returns AF_XDP as the workers have it; `otherwise` where none has rings.
pub(crate) fn status<'a>(
    otherwise: Option<&XdpStatus>,
    workers: impl Iterator<Item = (u32, &'a RingState)>,
) -> Option<XdpStatus> {
    let mut status: Option<XdpStatus> = None;
    for (id, state) in workers {
        status.get_or_insert_with(|| opened(state)).workers.push(counted(id, &state.counters));
    }
    status.or_else(|| otherwise.cloned())
}

fn opened(state: &RingState) -> XdpStatus {
    XdpStatus {
        interface: state.interface.to_string(),
        mode: state.mode.map_or(SOCKETS, XdpMode::as_str).to_owned(),
        steps: state.steps.iter().map(shown).collect(),
        is_aside: state.is_aside,
        workers: Vec::new(),
    }
}

fn counted(id: u32, counters: &XdpCounters) -> XdpWorker {
    let by_sockets = [
        ("unresolved", counters.unresolved),
        ("oversized", counters.oversized),
        ("unfit", counters.unfit),
        ("no_ring", counters.no_ring),
        ("policy", counters.policies),
    ];
    XdpWorker {
        id,
        received_in_place: counters.received_in_place,
        received_copied: counters.received_copied,
        sent_in_place: counters.sent_in_place,
        sent_copied: counters.sent_copied,
        partial_checksums: counters.partial_checksums,
        by_sockets: by_sockets
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
        kernel_drops: counters.kernel_drops,
        bad_descriptors: counters.kernel_refusals + counters.strange_frames,
        wakeups: counters.wakeups,
        reopened: counters.reopened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(mode: XdpMode, cause: StepCause) -> StepDown {
        StepDown { mode, cause, reason: "because".to_owned() }
    }

    #[test]
    fn what_the_automatic_choice_leaves_out_is_a_step_down_like_any_other() {
        let tried = step(XdpMode::ZeroCopy, StepCause::NotSupported);
        let causes = |io: OuterIo| -> Vec<(String, String)> {
            let refused = Refused::after("eth0", std::slice::from_ref(&tried), "because").by_choice(io);
            assert_eq!((refused.status.mode.as_str(), refused.reason.as_str()), ("sockets", "because"));
            refused.status.steps.into_iter().map(|step| (step.mode, step.cause)).collect()
        };
        let pair = |mode: &str, cause: &str| (mode.to_owned(), cause.to_owned());
        assert_eq!(causes(OuterIo::AfXdp), [pair("zero-copy", "not_supported")]);
        assert_eq!(
            causes(OuterIo::Auto),
            [pair("zero-copy", "not_supported"), pair("native", "not_wanted"), pair("generic", "not_wanted")]
        );
    }

    #[test]
    fn workers_with_rings_go_before_how_it_began_and_a_lost_interface_leaves_sockets() {
        let refused = Refused::whole("eth0", StepCause::ForeignProgram, "taken").status;
        assert_eq!(status(None, std::iter::empty()), None);
        assert_eq!(status(Some(&refused), std::iter::empty()).as_ref(), Some(&refused));
        let counters =
            XdpCounters { unresolved: 3, kernel_refusals: 1, strange_frames: 2, ..XdpCounters::default() };
        let mut state = RingState {
            interface: "eth1".into(),
            mode: Some(XdpMode::Native),
            steps: [step(XdpMode::ZeroCopy, StepCause::Busy)].into(),
            is_aside: false,
            counters,
        };
        let shown = status(Some(&refused), [(0, &state), (1, &state)].into_iter()).unwrap();
        assert_eq!((shown.interface.as_str(), shown.mode.as_str()), ("eth1", "native"));
        assert_eq!(shown.workers.iter().map(|worker| worker.id).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(shown.workers[1].by_sockets, [("unresolved".to_owned(), 3)].into());
        assert_eq!(shown.workers[1].bad_descriptors, 3);
        state.mode = None;
        assert_eq!(status(None, [(0, &state)].into_iter()).unwrap().mode, "sockets");
    }
}
