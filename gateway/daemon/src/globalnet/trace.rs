//! Traces a packet: asks the workers how they would process it.

use std::time::Duration;

use tokio::sync::oneshot;
use trieste_control::admin::{TraceAnswer, TraceDirection, TracePacket, TraceRequest, TraceStep};
use trieste_packet::{FlowKey, WorkerId};
use trieste_pipeline::{Trace, TraceQuestion};

use super::view::GlobalnetView;
use crate::worker::{Command, TraceJob, WorkerHandle};

/// How long to wait for a worker, which answers between two batches.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

impl GlobalnetView {
    /// Returns how a packet would be processed, and why.
    ///
    /// # Errors
    /// A worker does not answer.
    pub async fn trace(&self, request: TraceRequest) -> Result<TraceAnswer, String> {
        let flow = FlowKey::new(
            request.from,
            request.to,
            request.proto.number(request.from.is_ipv6()),
            request.sport,
            request.dport,
        );
        let is_outbound = request.direction == TraceDirection::Outbound;
        let first = TraceQuestion { flow, is_outbound, is_answer: false };
        let mut trace = self.ask_owner(first).await?;
        if !trace.is_live {
            // There is no such session in this direction; the packet may be an answer.
            let answer = self.ask_owner(TraceQuestion { is_answer: true, ..first }).await?;
            if answer.is_live {
                trace = answer;
            }
        }
        Ok(answer(request, trace))
    }

    /// Asks the worker that owns the packet's session.
    async fn ask_owner(&self, question: TraceQuestion) -> Result<Trace, String> {
        let first = self.workers().first().ok_or("this gateway has no workers")?;
        let trace = ask(first, question).await?;
        match self.workers().iter().find(|worker| worker.id == trace.worker) {
            Some(owner) if owner.id != first.id => ask(owner, question).await,
            _ => Ok(trace),
        }
    }
}

async fn ask(worker: &WorkerHandle, question: TraceQuestion) -> Result<Trace, String> {
    let WorkerId(id) = worker.id;
    let (reply, answer) = oneshot::channel();
    worker.command(Command::Trace(TraceJob { question, reply }));
    match tokio::time::timeout(REPLY_TIMEOUT, answer).await {
        Ok(Ok(trace)) => Ok(trace),
        Ok(Err(_)) => {
            Err(format!("worker {id} has not answered: it panicked or has ended, see `trieste status`"))
        }
        Err(_) => Err(format!("worker {id} has not answered within {} s", REPLY_TIMEOUT.as_secs())),
    }
}

fn answer(request: TraceRequest, trace: Trace) -> TraceAnswer {
    TraceAnswer {
        request,
        worker: trace.worker.0.into(),
        is_live: trace.is_live,
        steps: trace
            .steps
            .into_iter()
            .map(|step| TraceStep { stage: step.stage.to_owned(), decision: step.decision, why: step.why })
            .collect(),
        result: trace.result.map(|flow| TracePacket {
            from: flow.source(),
            to: flow.destination(),
            sport: flow.source_port,
            dport: flow.destination_port,
        }),
        dropped: trace.dropped.map(|reason| reason.as_str().to_owned()),
    }
}
