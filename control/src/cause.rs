//! The innermost cause of an error.

use std::error::Error;

/// Returns the text of the innermost cause: the outer errors of a connection say no more than that a request failed,
/// the last one says refused, unknown host, unknown authority.
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the request failed")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn the_last_cause_is_the_one_that_says_something() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(innermost(&Outer(refused())), "connection refused");
        assert_eq!(innermost(&refused()), "connection refused");
    }
}
