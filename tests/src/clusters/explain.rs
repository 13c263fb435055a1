//! What a cluster says about itself when something does not get ready.

use serde_json::Value;

use super::cluster::{Cluster, condition};

/// How many events, and lines of a log, are enough to see what goes wrong.
const EVENTS: usize = 15;
const LINES: usize = 15;

impl Cluster {
    /// Nodes and pods that are not ready with their last words, recent warnings, and the ends of logs of programs that
    /// had to be started again. Never fails: what cannot be asked is left out.
    pub fn explain(&self) -> String {
        let mut lines = vec![format!("cluster {} says:", self.name())];
        self.explain_nodes(&mut lines);
        self.explain_pods(&mut lines);
        self.explain_events(&mut lines);
        self.explain_programs(&mut lines);
        lines.join("\n")
    }

    fn explain_nodes(&self, lines: &mut Vec<String>) {
        let nodes = match self.client().list("/api/v1/nodes") {
            Ok(nodes) => nodes,
            Err(error) => return lines.push(format!("  the API server does not answer: {error:#}")),
        };
        for node in nodes {
            let ready = condition(&node, "Ready").unwrap_or_default();
            lines.push(format!(
                "  node {}: ready {} {}",
                text(&node["metadata"]["name"]),
                text(&ready["status"]),
                text(&ready["message"])
            ));
        }
    }

    fn explain_pods(&self, lines: &mut Vec<String>) {
        for pod in self.client().list("/api/v1/pods").unwrap_or_default() {
            let (namespace, name) = (text(&pod["metadata"]["namespace"]), text(&pod["metadata"]["name"]));
            let is_ready = condition(&pod, "Ready").is_some_and(|ready| ready["status"] == "True");
            let (node, phase) = (text(&pod["spec"]["nodeName"]), text(&pod["status"]["phase"]));
            lines.push(format!("  pod {namespace}/{name} on {node}: {phase}, ready {is_ready}"));
            if is_ready {
                continue;
            }
            for kind in ["initContainerStatuses", "containerStatuses"] {
                for container in pod["status"][kind].as_array().into_iter().flatten() {
                    lines.push(format!("    {}: {}", text(&container["name"]), container["state"]));
                }
            }
            self.explain_logs(&namespace, &name, lines);
        }
    }

    fn explain_logs(&self, namespace: &str, name: &str, lines: &mut Vec<String>) {
        let tail = format!("--tail={LINES}");
        for previous in ["--previous=true", "--previous=false"] {
            let words = ["logs", "-n", namespace, name, "--all-containers", &tail, previous];
            if let Ok(output) = self.kubectl(&words) {
                lines.extend(output.stdout.lines().map(|line| format!("    | {line}")));
            }
        }
    }

    fn explain_events(&self, lines: &mut Vec<String>) {
        let events = self.client().list("/api/v1/events?fieldSelector=type%3DWarning").unwrap_or_default();
        for event in events.iter().rev().take(EVENTS) {
            let object = &event["involvedObject"];
            lines.push(format!(
                "  {} {}: {}: {}",
                text(&object["kind"]),
                text(&object["name"]),
                text(&event["reason"]),
                text(&event["message"])
            ));
        }
    }

    fn explain_programs(&self, lines: &mut Vec<String>) {
        for node in self.nodes() {
            let Ok(entries) = std::fs::read_dir(node.folder().join("log")) else { continue };
            for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
                let log = std::fs::read(&path).unwrap_or_default();
                let log = String::from_utf8_lossy(&log);
                if log.contains("--- it ended") {
                    lines.push(format!("  {} was started again:", path.display()));
                    let tail: Vec<_> = log.lines().rev().take(LINES).collect();
                    lines.extend(tail.into_iter().rev().map(|line| format!("    | {line}")));
                }
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("?").to_owned()
}
