//! `summary.html`: what was gathered, what is missing, and how the cluster's nodes and gateways are.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use super::bundle::Written;
use crate::api::text;

/// What a summary says.
pub(super) struct Summary<'a> {
    pub(super) cluster: &'a str,
    pub(super) server_version: &'a str,
    pub(super) now: Timestamp,
    pub(super) nodes: &'a [Value],
    pub(super) gateways: &'a [Value],
    pub(super) written: &'a Written,
}

impl Summary<'_> {
    pub(super) fn html(&self) -> String {
        let mut page = head(&format!("Cluster {}", self.cluster));
        let facts = [
            ("Gathered", self.now.to_string()),
            ("By", format!("trieste {}", env!("CARGO_PKG_VERSION"))),
            ("Kubernetes", self.server_version.to_owned()),
        ];
        page += &table(&["", ""], facts.map(|(name, value)| vec![name.to_owned(), value]));
        page += "<h2>Nodes</h2>\n";
        page += &table(&["Name", "Kubelet", "Architecture", "Kernel", "OS"], self.nodes.iter().map(node));
        page += "<h2>Gateways</h2>\n";
        page += &table(&["Name", "State", "Version", "Connections"], self.gateways.iter().map(gateway));
        page += "<h2>Not gathered</h2>\n";
        page += &table(&["What, and why"], self.written.missing.iter().map(|what| vec![what.clone()]));
        page += "<h2>Files</h2>\n<table>\n<tr><th>Name</th><th>Bytes</th></tr>\n";
        for (name, bytes) in &self.written.files {
            let name = escaped(name);
            let _ = writeln!(page, "<tr><td><a href=\"{name}\">{name}</a></td><td>{bytes}</td></tr>");
        }
        page + "</table>\n</body></html>\n"
    }
}

/// The page above all clusters: name, directory, and what is missing.
pub(super) fn index(clusters: &[(String, String, String)]) -> String {
    let mut page = head("Gathered clusters");
    page += "<table>\n<tr><th>Cluster</th><th></th></tr>\n";
    for (cluster, directory, remark) in clusters {
        let (cluster, directory, remark) = (escaped(cluster), escaped(directory), escaped(remark));
        if directory.is_empty() {
            let _ = writeln!(page, "<tr><td>{cluster}</td><td>{remark}</td></tr>");
        } else {
            let _ = writeln!(
                page,
                "<tr><td><a href=\"{directory}/summary.html\">{cluster}</a></td><td>{remark}</td></tr>"
            );
        }
    }
    page + "</table>\n</body></html>\n"
}

fn node(node: &Value) -> Vec<String> {
    let info = |name: &str| text(node, &format!("/status/nodeInfo/{name}")).to_owned();
    let name = text(node, "/metadata/name").to_owned();
    vec![name, info("kubeletVersion"), info("architecture"), info("kernelVersion"), info("osImage")]
}

fn gateway(gateway: &Value) -> Vec<String> {
    let connections = gateway["status"]["connections"].as_array().map_or(0, Vec::len);
    vec![
        text(gateway, "/metadata/name").to_owned(),
        text(gateway, "/status/haStatus").to_owned(),
        text(gateway, "/status/version").to_owned(),
        connections.to_string(),
    ]
}

fn head(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>body {{ font-family: \
         sans-serif }} td, th {{ text-align: left; padding: 0.1em 1em 0.1em 0 }}</style></head>\n<body>\n\
         <h1>{title}</h1>\n"
    )
}

fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let cells = |cells: &mut dyn Iterator<Item = &str>, tag: &str| {
        cells.map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect::<String>()
    };
    let mut text = format!("<table>\n<tr>{}</tr>\n", cells(&mut heads.iter().copied(), "th"));
    for row in rows {
        let _ = writeln!(text, "<tr>{}</tr>", cells(&mut row.iter().map(String::as_str), "td"));
    }
    text + "</table>\n"
}

/// Text from elsewhere is no markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_cluster_says_of_itself_is_no_markup() {
        let written = Written { missing: vec!["<b>x".to_owned()], ..Written::default() };
        let nodes = [json!({"metadata": {"name": "<script>"}})];
        let summary = Summary {
            cluster: "a\"b",
            server_version: "v1",
            now: Timestamp::UNIX_EPOCH,
            nodes: &nodes,
            gateways: &[],
            written: &written,
        };
        let page = summary.html();
        assert!(page.contains("&lt;script&gt;") && page.contains("&lt;b&gt;x"), "{page}");
        assert!(!page.contains("<script>") && page.contains("a&quot;b"), "{page}");
    }
}
