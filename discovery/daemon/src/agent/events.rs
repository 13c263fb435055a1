//! Changes of exports' conditions as Kubernetes Events about them.

use tokio::sync::watch;
use trieste_control::admin::Severity;
use trieste_control::recorder::{About, Recorder};
use trieste_discovery_agent::AgentStatus;

/// Records each change, until the agent has ended.
pub async fn record(mut status: watch::Receiver<AgentStatus>, recorder: Recorder) {
    let mut last = 0;
    loop {
        let latest = status.borrow_and_update().transitions.clone();
        for transition in latest.iter().filter(|transition| transition.number > last) {
            let about = About { key: transition.export.clone(), uid: transition.uid.clone() };
            let severity = if transition.is_good { Severity::Info } else { Severity::Warning };
            recorder.record_about(about, severity, &transition.reason, transition.message.as_str());
        }
        last = latest.last().map_or(last, |transition| transition.number);
        if status.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use trieste_control::api::{Kind, ObjectKey};
    use trieste_discovery_agent::Transition;

    use super::*;

    #[tokio::test]
    async fn each_change_is_recorded_once() {
        let transition = |number, is_good| Transition {
            number,
            export: ObjectKey::new(Kind::ServiceExport, "shop", "web"),
            uid: None,
            is_good,
            reason: "Exported".to_owned(),
            message: "it was".to_owned(),
        };
        let (sender, status) = watch::channel(AgentStatus::default());
        let (recorder, _queue) = Recorder::of_many("trieste-discovery");
        let task = tokio::spawn(record(status, recorder.clone()));
        for numbers in [1..=2, 1..=2, 2..=5] {
            let transitions: Vec<Transition> = numbers.map(|number| transition(number, number < 5)).collect();
            sender.send_replace(AgentStatus { transitions: Arc::new(transitions), ..AgentStatus::default() });
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(sender);
        task.await.unwrap();
        let counts = recorder.counts();
        let count = |severity| counts[&("Exported".to_owned(), severity)];
        assert_eq!((count(Severity::Info), count(Severity::Warning)), (4, 1));
    }
}
