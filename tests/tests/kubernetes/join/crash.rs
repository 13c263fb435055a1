//! A client that breaks off after so many writes, as a program does that is killed: the last write has reached the
//! server, and nobody reads its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use hyper::{Method, Request};
use tower::{BoxError, Layer, Service};

/// Counts writes down; from zero on, everything fails.
#[derive(Clone)]
pub(crate) struct Crash(Arc<AtomicI64>);

impl Crash {
    /// Breaks off at the `writes`-th write, from one on.
    pub(crate) fn after(writes: i64) -> Self {
        Self(Arc::new(AtomicI64::new(writes)))
    }
}

impl Crash {
    /// Returns `true` if it has broken off.
    pub(crate) fn has_struck(&self) -> bool {
        self.0.load(Ordering::SeqCst) < 0
    }
}

impl<S> Layer<S> for Crash {
    type Service = Crashing<S>;

    fn layer(&self, inner: S) -> Crashing<S> {
        Crashing { inner, left: self.clone() }
    }
}

/// The service behind the layer.
#[derive(Clone)]
pub(crate) struct Crashing<S> {
    inner: S,
    left: Crash,
}

impl<S, B> Service<Request<B>> for Crashing<S>
where
    S: Service<Request<B>, Error: Into<BoxError>, Future: Send + 'static>,
    S::Response: Send,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Questions are asked with POST, too; they write nothing.
        let asks = request.uri().path().ends_with("selfsubjectaccessreviews")
            || request.uri().query().is_some_and(|query| query.contains("dryRun"));
        let writes = request.method() != Method::GET && !asks;
        let left = if writes {
            self.left.0.fetch_sub(1, Ordering::SeqCst)
        } else {
            self.left.0.load(Ordering::SeqCst)
        };
        let is_dead = if writes { left <= 0 } else { left < 0 };
        let is_last = writes && left == 1;
        let answer = (!is_dead).then(|| self.inner.call(request));
        let counter = Arc::clone(&self.left.0);
        Box::pin(async move {
            let Some(answer) = answer else { return Err("killed".into()) };
            let answer = answer.await.map_err(Into::into)?;
            if is_last {
                counter.store(-1, Ordering::SeqCst);
                return Err("killed".into());
            }
            Ok(answer)
        })
    }
}
