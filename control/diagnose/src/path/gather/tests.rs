//! What is sent again, and what is kept of it.

use std::sync::Mutex;

use super::*;
use crate::node::{SentPacket, WatchReport};
use crate::path::evidence::PodFacts;

/// A node whose packets are answered from this request on, counted from 0, but for those with these numbers.
struct Node {
    first_answered: usize,
    lost: &'static [u16],
    requests: Mutex<Vec<SendRequest>>,
}

impl Node {
    fn new(first_answered: usize, lost: &'static [u16]) -> Self {
        Self { first_answered, lost, requests: Mutex::default() }
    }

    fn answer(&self, request: &SendRequest) -> SendReport {
        let mut requests = self.requests.lock().unwrap();
        let is_answered = requests.len() >= self.first_answered;
        requests.push(request.clone());
        let packet = |(number, size): (u16, &u16)| SentPacket {
            number,
            size: *size,
            answered_us: (is_answered && !self.lost.contains(&number)).then_some(400),
            ..SentPacket::default()
        };
        SendReport { source: None, sent: (1..).zip(&request.sizes).map(packet).collect() }
    }

    /// Returns the probe of each request, and its number of packets.
    fn asked(&self) -> Vec<(u16, usize)> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|request| (request.probe, request.sizes.len())).collect()
    }
}

impl Agents for Node {
    async fn report(&self, _: &str) -> Result<NodeReport, AgentError> {
        Ok(NodeReport::default())
    }

    async fn watch(&self, _: &str, _: &WatchRequest) -> Result<Watching, AgentError> {
        Ok(Watching::ended(WatchReport::default()))
    }

    async fn send(&self, _: &str, request: &SendRequest) -> Result<SendReport, AgentError> {
        Ok(self.answer(request))
    }
}

/// Has such a node send, and returns what became of the small pings.
async fn pinged(node: &Node) -> SendReport {
    let pod = |address: &str| PodFacts { address: address.parse().ok(), ..PodFacts::default() };
    let source = Cluster { worker: Some("a-w1".to_owned()), pod: pod("10.1.1.5"), ..Cluster::default() };
    let destination = Cluster { pod: pod("10.2.1.7"), ..Cluster::default() };
    let evidence = Evidence { source, destination, ..Evidence::default() };
    let plan = Plan { run: Run([0x80, 0, 0, 0, 0, 1]), evidence: &evidence };
    let sent = plan.pings(node).await;
    let (_, report) = sent.into_iter().find(|(number, _)| *number == probe::PING).unwrap();
    report.unwrap()
}

fn numbers(report: &SendReport) -> Vec<u16> {
    report.sent.iter().map(|packet| packet.number).collect()
}

#[tokio::test]
async fn pings_of_which_some_are_answered_are_sent_once() {
    let node = Node::new(0, &[1, 2]);
    let report = pinged(&node).await;
    assert_eq!((numbers(&report), report.answered()), (vec![1, 2, 3], 1));
    assert_eq!(node.asked()[..1], [(probe::PING, 3)]);
    assert_eq!(node.asked()[1].0, probe::SIZES);
}

#[tokio::test]
async fn pings_of_which_none_is_answered_are_sent_once_more() {
    let node = Node::new(1, &[]);
    let report = pinged(&node).await;
    assert_eq!((numbers(&report), report.answered()), (vec![1, 2, 3, 4, 5, 6], 3));
    assert_eq!(node.asked()[..2], [(probe::PING, 3), (probe::PING, 6)]);
    assert_eq!(node.asked()[2].0, probe::SIZES);
}

#[tokio::test]
async fn late_answers_are_none_to_what_is_sent_once_more() {
    let node = Node::new(1, &[4, 5, 6]);
    let report = pinged(&node).await;
    assert_eq!((numbers(&report), report.answered()), (vec![1, 2, 3, 4, 5, 6], 0));
    assert_eq!(node.asked(), [(probe::PING, 3), (probe::PING, 6)]);
}
